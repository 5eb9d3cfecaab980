"""A service that is away for a while: a step on a cluster waits for it, and says so once."""

import asyncio
import logging
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import orjson
import pytest
import uvicorn

from qinglan.errors import ConfigError, OutageError
from qinglan.http.http_client import async_client
from qinglan.http.outages import OUTAGE_VARIABLE, outage_seconds
from qinglan.lineage.steps.step_inputs import gateway_http, read_gateway
from qinglan.llm.client import GatewayClient
from qinglan.llm.contract import CALL_HEADER, PRICES_PATH
from qinglan.rag.client import RagClient
from qinglan.rag.contract import RagRequest
from tests.servers.echo_servers import Reply, Scripted, Server, completion, running

ROWS = 20


async def ask_models(url: str) -> Any:
    async with GatewayClient(url, "generate") as gateway:
        asks = [gateway.ask("teacher", [{"role": "user", "content": "问"}], row=str(row)) for row in range(ROWS)]
        return await asyncio.gather(*asks)


async def retrieve(url: str) -> Any:
    async with RagClient.of_gateway(url) as rag:
        return await asyncio.gather(*[rag.retrieve(RagRequest(query="问", tenant_id="t")) for _ in range(ROWS)])


async def read_prices(url: str) -> Any:
    with gateway_http(url) as http:
        return await asyncio.to_thread(read_gateway, http, PRICES_PATH)


CLIENTS: dict[str, tuple[Callable[[str], Any], Reply]] = {
    "models": (ask_models, Reply(200, completion("虾青素"), {CALL_HEADER: "k1"})),
    "retrievals": (retrieve, Reply(200, orjson.dumps({"code": 200, "data": {"recall": []}}))),
    "prices": (read_prices, Reply(200, b"{}")),
}


class WaitLog(logging.Handler):
    """The lines about outages, and an event at the first."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []
        self.waiting = threading.Event()

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())
        self.waiting.set()


@pytest.fixture
def log() -> Iterator[WaitLog]:
    handler, logger = WaitLog(), logging.getLogger("qinglan.http.outages")
    logger.addHandler(handler)
    yield handler
    logger.removeHandler(handler)


@contextmanager
def started_while_awaited(app: Any, log: WaitLog) -> Iterator[str]:
    """The URL of a server that refuses connections until the log says that somebody waits for it."""
    closed = socket.socket()
    closed.bind(("127.0.0.1", 0))
    server = Server(uvicorn.Config(app, log_level="error", lifespan="off"))

    def serve() -> None:
        if log.waiting.wait(30):
            server.run(sockets=[closed])

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield f"http://127.0.0.1:{closed.getsockname()[1]}"
    finally:
        log.waiting.set()
        server.should_exit = True
        thread.join()
        closed.close()


@pytest.mark.parametrize("client", CLIENTS)
def test_a_service_that_comes_back_in_time_costs_a_wait_that_is_logged_once(
    client: str, log: WaitLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(OUTAGE_VARIABLE, "60")
    ask, answer = CLIENTS[client]

    with started_while_awaited(Scripted(answer), log) as url:
        assert asyncio.run(ask(url))

    waited, over = log.lines
    assert url in waited and "gives no answer" in waited and "sending again for up to 60 s" in waited
    assert url in over and "answers again" in over


@pytest.mark.parametrize("client", CLIENTS)
def test_a_service_that_stays_away_is_an_outage_after_that_time(
    client: str, log: WaitLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(OUTAGE_VARIABLE, "0.3")
    with socket.create_server(("127.0.0.1", 0)) as free:
        url = f"http://127.0.0.1:{free.getsockname()[1]}"

    with pytest.raises(OutageError, match=r"Tried for 0\.3 s|does not say what was used"):
        asyncio.run(CLIENTS[client][0](url))

    [line] = log.lines
    assert "sending again for up to 0.3 s" in line


@pytest.mark.parametrize("client", ["retrievals", "prices"])
def test_a_proxy_that_has_nobody_behind_it_is_waited_for_too(client: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(OUTAGE_VARIABLE, "60")
    monkeypatch.setattr("qinglan.http.outages.LONGEST_PAUSE", 0.01)
    ask, answer = CLIENTS[client]
    app = Scripted(*[Reply(503, b"no healthy upstream")] * 5, answer)  # more than the attempts on a machine

    with running(app) as url:
        assert asyncio.run(ask(url))

    assert len(app.requests) > 5


def test_on_a_machine_a_retry_names_the_service_the_reason_and_the_limit_once(
    log: WaitLog, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("qinglan.http.outages.LONGEST_PAUSE", 0.01)
    request = RagRequest(query="问", tenant_id="t")
    answer = CLIENTS["retrievals"][1]

    async def retrieve_once(url: str) -> None:
        async with RagClient(url) as rag:
            await rag.retrieve(request)

    with running(Scripted(Reply(503, b"starting"), Reply(503, b"starting"), answer)) as url:
        asyncio.run(retrieve_once(url))

    waited, over = log.lines
    assert (
        waited == f"RAG service {url} gives no answer (status 503: 'starting'); sending again up to 4 times in all."
    )
    assert f"RAG service {url} answers again, after" in over
    assert caplog.messages == log.lines  # and no line of a library


@pytest.mark.parametrize("text", ["soon", "-1", "nan", "inf"])
def test_a_time_that_is_none_is_refused(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(OUTAGE_VARIABLE, text)

    with pytest.raises(ConfigError, match="is no number of seconds"):
        outage_seconds()


def test_a_connection_to_a_lost_machine_ends_by_its_own_probes() -> None:
    async def options(url: str) -> list[int]:
        async with async_client(timeout=None) as http, http.stream("GET", url) as response:
            connection = response.extensions["network_stream"].get_extra_info("socket")
            return [
                connection.getsockopt(*option)
                for option in (
                    (socket.SOL_SOCKET, socket.SO_KEEPALIVE), (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL),
                    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT),
                )
            ]  # fmt: skip

    with running(Scripted(Reply(200, b"{}"))) as url:
        assert asyncio.run(options(url)) == [1, 10, 3]
