"""How a server of ours begins and ends: it says its address on one line, and SIGTERM lets it finish what it has."""

import asyncio
import contextlib
import logging
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from typing import Any

import orjson
import uvicorn
from starlette.requests import Request
from starlette.responses import Response

from qinglan.errors import ConfigError

BACKLOG = 2048

NOBODY_THERE = 499
IDLE_SECONDS = 120
"""How long an unused connection is kept: one that is closed as its client writes looks like an outage there."""


async def hung_up(_: Request, __: Exception) -> Response:
    """The caller went away within its own request; nobody reads this."""
    return Response(status_code=NOBODY_THERE)


class _Server(uvicorn.Server):
    """Signals are ours: uvicorn's own handlers would end the process before its journal is closed."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def listen(host: str, port: int) -> socket.socket:
    """A listening socket; port 0 takes a free one."""
    try:
        return socket.create_server((host, port), backlog=BACKLOG)
    except OSError as error:
        raise ConfigError(f"{host}:{port}: cannot listen there ({error.strerror}). Choose another port.") from None


async def serve_app(
    name: str, app: Any, listening: socket.socket, path: str = "", stopping: Callable[[], None] = lambda: None
) -> None:
    """Print {name: address}, then serve until SIGTERM or SIGINT; `stopping` is called first, answers come after."""
    host, port = listening.getsockname()[:2]
    server = _Server(
        uvicorn.Config(app, log_level="warning", access_log=False, lifespan="off", timeout_keep_alive=IDLE_SECONDS)
    )

    def stop() -> None:
        stopping()
        server.should_exit = True

    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop)
    print(orjson.dumps({name: f"http://{host}:{port}{path}"}).decode(), flush=True)
    await server.serve(sockets=[listening])


def log_to_stderr() -> None:
    """Warnings and errors of everybody, and no line for each request."""
    logging.basicConfig(
        level=logging.WARNING, format="%(asctime)s %(levelname)s %(name)s %(message)s", stream=sys.stderr
    )
