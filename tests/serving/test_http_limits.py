"""Limits of every request: endless and slow senders are ended, and others do not wait for them."""

import re
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from serving import http_limits
from serving.http_limits import LARGEST_HEAD, MOST_HEADERS, head_size
from serving.http_server import ThreadedServer, client_disconnected, listen
from tests.servers.hostile_senders import ENDLESS, LINE, connected, read_response, send

REPOSITORY = Path(__file__).parents[2]
CLOSE = b"connection: close\r\n"


async def count(request: Request) -> Response:
    return PlainTextResponse(str(len(await request.body())))


async def refuse(_: Request) -> Response:
    return PlainTextResponse("no", 413)


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """A server of ours, whose deadlines are short."""
    routes = [Route("/", count, methods=["GET", "POST"]), Route("/refuse", refuse, methods=["POST"])]
    handlers: dict[Any, Any] = {ClientDisconnect: client_disconnected}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(http_limits, "REQUEST_SECONDS", 0.4)
        patch.setattr(http_limits, "REST_SECONDS", 0.3)
        listening = listen("127.0.0.1", 0)
        server = ThreadedServer(Starlette(routes=routes, exception_handlers=handlers), listening)
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        server.shutdown()


def status(answer: bytes) -> int:
    return int(answer.split()[1])


@pytest.mark.parametrize("what", ENDLESS)
def test_what_has_no_end_is_cut(url: str, what: str) -> None:
    sent, _ = send(url, ENDLESS[what])

    assert sent < 20_000_000


@pytest.mark.parametrize(
    ("head", "answered"),
    [
        (LINE + b"x: y\r\n" * (MOST_HEADERS - 2) + CLOSE + b"\r\n", 200),
        (LINE + b"x: y\r\n" * (MOST_HEADERS - 1) + CLOSE + b"\r\n", 431),
        (LINE + CLOSE + b"x: " + b"a" * (LARGEST_HEAD - 100) + b"\r\n\r\n", 200),
        (LINE + CLOSE + b"x: " + b"a" * LARGEST_HEAD + b"\r\n\r\n", 431),
        (LINE + CLOSE + b"x: " + b"a" * 3 * LARGEST_HEAD, 431),
        (b"GET /" + b"a" * LARGEST_HEAD + b" HTTP/1.1\r\n" + CLOSE + b"\r\n", 431),
        (LINE + CLOSE + b"content-length: 300000\r\n\r\n" + b"a" * 300_000, 200),
        (b"nonsense\r\n\r\n", 400),
        (LINE + b"upgrade: websocket\r\nconnection: upgrade, close\r\nsec-websocket-key: a\r\n\r\n", 200),
    ],
    ids=["most headers", "one more", "a long header", "longer", "without an end", "a long address", "a large body",
         "no HTTP", "WebSocket"],
)  # fmt: skip
def test_a_head_has_its_limits(url: str, head: bytes, answered: int) -> None:
    assert status(send(url, [head])[1]) == answered


@pytest.mark.parametrize(
    ("begin", "piece"),
    [
        (LINE, b"x: y\r\n"),
        (LINE + b"x: ", b"a"),
        (LINE + b"content-length: 100000\r\n\r\n", b"a"),
        (LINE + b"transfer-encoding: chunked\r\n\r\n", b"1\r\na\r\n"),
        (b"G", b""),
    ],
    ids=["headers", "one header", "a body", "chunks", "one byte and silence"],
)
def test_a_slow_sender_is_told_and_ended(url: str, begin: bytes, piece: bytes) -> None:
    with connected(url) as connection:
        connection.sendall(begin)
        connection.settimeout(0.05)
        answer = b""
        for _ in range(1200):
            try:
                answer = connection.recv(1000)
                break
            except TimeoutError:
                connection.sendall(piece)

    assert status(answer) == 408


def test_a_connection_that_never_asks_is_ended(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_limits, "IDLE_SECONDS", 0.2)
    with connected(url) as connection:
        assert connection.recv(100) == b""


def test_the_rest_of_a_refused_body_is_read_for_a_moment_only(url: str) -> None:
    with connected(url) as connection:
        connection.sendall(b"POST /refuse HTTP/1.1\r\nhost: a\r\ncontent-length: 9000000\r\n\r\n" + b"a" * 10)
        assert read_response(connection) == (413, b"no")
        assert connection.recv(1000) == b""


def test_a_refused_body_that_comes_to_its_end_keeps_its_connection(url: str) -> None:
    with connected(url) as connection:
        head = b"POST /refuse HTTP/1.1\r\nhost: a\r\ncontent-length: 20\r\n\r\n"
        connection.sendall(head + b"a" * 10)
        assert read_response(connection) == (413, b"no")
        connection.sendall(b"a" * 10)
        time.sleep(2 * http_limits.REST_SECONDS)
        connection.sendall(LINE + b"content-length: 3\r\n\r\nabc")

        assert read_response(connection) == (200, b"3")


def test_requests_sent_together_are_answered_in_order(url: str) -> None:
    bodies = [b"content-length: %d\r\n\r\n" % size + b"a" * size for size in (1, 70_000, 3)]
    _, answers = send(url, [LINE + bodies[0] + LINE + bodies[1] + LINE + CLOSE + bodies[2]])

    assert re.findall(rb"\r\n\r\n(\d+)", answers) == [b"1", b"70000", b"3"]


def test_a_kept_connection_outlives_the_deadline_of_a_request(url: str) -> None:
    with httpx.Client(base_url=url, trust_env=False) as client:
        streams = set()
        for _ in range(3):
            answer = client.post("/", content=b"abc")
            streams.add(id(answer.extensions["network_stream"].get_extra_info("socket")))
            time.sleep(http_limits.REQUEST_SECONDS)

    assert answer.text == "3"
    assert len(streams) == 1


def test_the_size_of_a_head_is_that_of_its_bytes() -> None:
    assert head_size(b"/ab", [(b"x", b"yz"), (b"a", b"")]) == len(b"/ab" + b"x: yz\r\n" + b"a: \r\n")


@pytest.mark.slow
def test_others_do_not_wait_for_endless_and_slow_senders(url: str) -> None:
    def p99(calls: int = 200) -> float:
        seconds = []
        with httpx.Client(base_url=url, trust_env=False) as client:
            for _ in range(calls):
                started = time.perf_counter()
                assert client.post("/", content=b"abc").text == "3"
                seconds.append(time.perf_counter() - started)
        return sorted(seconds)[calls * 99 // 100]

    alone, stop = p99(), threading.Event()

    def attack(what: str) -> None:
        while not stop.is_set():
            send(url, ENDLESS[what])
            time.sleep(0.05)

    attackers = [threading.Thread(target=attack, args=(what,)) for what in ENDLESS]
    half_open = [socket.create_connection(("127.0.0.1", httpx.URL(url).port or 0)) for _ in range(100)]
    for connection in half_open:
        connection.sendall(LINE)
    for attacker in attackers:
        attacker.start()
    beside = p99()
    stop.set()
    for attacker in attackers:
        attacker.join()
    for connection in half_open:
        connection.close()

    # An endless header of 60 MB took seconds each before it was cut; a busy machine alone makes no such difference.
    assert beside < 50 * max(alone, 0.01)


@pytest.mark.slow
def test_no_server_of_ours_listens_without_the_limits() -> None:
    local = re.compile(r"uvicorn\.(Config|run)\(|HTTPServer\(|start_http_server\(|make_server\(|\bserve_forever\(")
    rooms = ("qinglan", "serving", "standins", "components", "pipelines", "commands", "examples")
    listening = {
        str(path.relative_to(REPOSITORY))
        for room in rooms
        for path in (REPOSITORY / room).rglob("*.py")
        if local.search(path.read_text(encoding="utf-8"))
    }

    assert listening == {"serving/http_server.py"}
