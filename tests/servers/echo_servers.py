"""Real servers on loopback that a test starts and stops; a model that repeats its input."""

import asyncio
import os
import signal
import socket
import subprocess
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import orjson
import uvicorn

from qinglan.http.request_bundles import BUNDLE_PATH as BUNDLE_PATH
from qinglan.http.request_bundles import FrameDecoder, FrameHeader, encode_frame
from qinglan.llm.config import GatewayConfig
from serving.gateway.server import open_gateway
from standins.teacher.backend import Refusal
from tests.processes.forkserver import GATEWAY, KILL, forked

PRICE = {"input": 1.0, "cached_input": 0.1, "output": 10.0, "as_of": "2026-11-01"}


class EchoBrain:
    """Says what it heard; declines when asked to, and rambles when asked to."""

    models = ("echo",)

    def answer(
        self, model: str, messages: list[dict[str, Any]], response_format: dict[str, Any] | None
    ) -> str | Refusal:
        heard = str(messages[-1]["content"])
        if "拒绝" in heard:
            return Refusal("这个我不能写。")
        if "很长" in heard:
            return heard * 500
        return orjson.dumps({"回声": heard}).decode() if response_format else f"回声 {heard}"


class Server(uvicorn.Server):
    """Ends as soon as it has answered; uvicorn looks every tenth of a second."""

    async def main_loop(self) -> None:
        await self.on_tick(0)
        while not self.should_exit:  # noqa: ASYNC110
            await asyncio.sleep(0.005)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for server in self.servers:
            server.close()
        for connection in list(self.server_state.connections):
            connection.shutdown()
        while self.server_state.connections or self.server_state.tasks:  # noqa: ASYNC110
            await asyncio.sleep(0.005)


@contextmanager
def running(app: Any) -> Iterator[str]:
    """The base URL of an app that a thread of this process serves."""
    listening = socket.create_server(("127.0.0.1", 0))
    server = Server(uvicorn.Config(app, log_level="error", lifespan="off"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
    thread.start()
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()
        listening.close()


class Reply(NamedTuple):
    status: int
    body: bytes
    headers: dict[str, str] = {}


class Scripted:
    """An ASGI app that gives one reply after the other, the last for ever, and keeps what it was sent."""

    def __init__(self, *replies: Reply) -> None:
        self.replies = replies
        self.requests: list[tuple[str, bytes, dict[str, str]]] = []

    async def __call__(self, scope: Any, receive: Callable[[], Any], send: Callable[[Any], Any]) -> None:
        body, more = b"", True
        while more:
            message = await receive()
            body, more = body + message.get("body", b""), message.get("more_body", False)
        headers = {name.decode(): value.decode() for name, value in scope["headers"]}
        if scope["path"] == BUNDLE_PATH:
            reply = Reply(200, b"".join(self._framed(head, content) for head, content in FrameDecoder().feed(body)))
        else:
            reply = self._next(scope["path"], body, headers)
        sent = [(name.encode(), value.encode()) for name, value in reply.headers.items()]
        await send({"type": "http.response.start", "status": reply.status, "headers": sent})
        await send({"type": "http.response.body", "body": reply.body})

    def _next(self, path: str, body: bytes, headers: dict[str, str]) -> Reply:
        reply = self.replies[min(len(self.requests), len(self.replies) - 1)]
        self.requests.append((path, body, headers))
        return reply

    def _framed(self, head: FrameHeader, content: bytes) -> bytes:
        """A request of a bundle: the next reply is its answer."""
        reply = self._next(head.subject, content, head.headers)
        return encode_frame(FrameHeader(head.position, str(reply.status), reply.headers), reply.body)


def completion(text: str, finish: str = "stop", **message: Any) -> bytes:
    """A completion's body as a paid service sends it."""
    choice = {"index": 0, "finish_reason": finish, "message": {"role": "assistant", "content": text, **message}}
    usage = {"prompt_tokens": 20, "completion_tokens": 5, "total_tokens": 25}
    return orjson.dumps(
        {"id": "c", "object": "chat.completion", "model": "echo", "choices": [choice], "usage": usage}
    )


def gateway_config(teacher: str, rag_url: str = "http://127.0.0.1:9", **changes: Any) -> GatewayConfig:
    """A gateway before a stand-in, quick to give up."""
    model = {"base_url": f"{teacher}/v1", "model": "echo", "price": PRICE, "max_output_tokens": 100}
    limits = {"attempts": 2, "requests_per_minute": 60_000, "longest_wait_seconds": 5.0}
    limits |= changes.pop("limits", {})
    values = {"teacher": model | changes.pop("model", {}), "judge": model, "limits": limits}
    values["rag"] = {"base_url": rag_url, "attempts": 2, **changes.pop("rag", {})}
    return GatewayConfig.parse({**values, **changes}, "test")


@asynccontextmanager
async def gateway(config: GatewayConfig, folder: Path) -> AsyncIterator[str]:
    """The base URL of a gateway on this loop, its files in `folder`."""
    async with open_gateway(config, folder / "journal.sqlite", folder / "retrievals.sqlite") as (app, _):
        listening = socket.create_server(("127.0.0.1", 0))
        server = Server(uvicorn.Config(app, log_level="error", lifespan="off"))
        serving = asyncio.create_task(server.serve([listening]))
        try:
            yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        finally:
            server.should_exit = True
            await serving


class GatewayProcess:
    """A gateway in a process of its own that can be stopped, or killed."""

    module = "serving.gateway"

    def __init__(
        self, config: GatewayConfig, folder: Path, environment: dict[str, str] | None = None, port: int = 0
    ) -> None:
        settings = folder / "gateway.json"
        settings.write_bytes(orjson.dumps(config.model_dump(mode="json")))
        self.log = folder / "gateway.log"
        arguments = ["--config", str(settings), "--journal", str(folder / "journal.sqlite")]
        arguments += ["--retrieval-cache", str(folder / "retrievals.sqlite"), "--port", str(port)]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                forked(self.module, *arguments, libraries=GATEWAY),
                stdout=subprocess.PIPE,
                stderr=log,
                env={**os.environ, **(environment or {})},
                cwd=Path(__file__).parents[2],
            )

    def url(self) -> str:
        """Return the server's address; raise an AssertionError with its log if it does not listen."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, self.log.read_text()
        return str(orjson.loads(line)["gateway"])

    def kill(self) -> None:
        self._end(KILL)

    def stop(self) -> int:
        return self._end(signal.SIGTERM)

    def _end(self, how: signal.Signals) -> int:
        if self.process.poll() is None:
            self.process.send_signal(how)
        code = self.process.wait(timeout=120)
        if self.process.stdout is not None:
            self.process.stdout.close()
        return code
