"""Start and stop a server. It prints its address on one line; after SIGTERM it finishes the requests under way."""

import asyncio
import contextlib
import ctypes
import gc
import logging
import signal
import socket
import struct
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import uvicorn
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from qinglan.errors import ConfigError
from qinglan.terminal import say_json
from serving.http_limits import IDLE_SECONDS, BoundedHttpProtocol

BACKLOG = 2048

SO_ATTACH_FILTER, BPF_RET = 26, 6
"""Constants of Linux that Python lacks, from asm-generic/socket.h and linux/bpf_common.h."""

CLIENT_CLOSED_REQUEST = 499

CLOSE_NOTICE_SECONDS = 0.2
"""Seconds after SIGTERM in which requests are still answered, with `connection: close` for the client."""


async def client_disconnected(_: Request, __: Exception) -> Response:
    """Answer a request whose caller has closed the connection; the caller does not read the answer."""
    return Response(status_code=CLIENT_CLOSED_REQUEST)


class _GracefulServer(uvicorn.Server):
    """uvicorn's server without its signal handlers, which would end the process before its journal is closed."""

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop accepting connections. A request on a connection that was just opened is still answered."""
        # Closing a listening socket resets the connections in its queue. So first the kernel drops new packets, then
        # all connections in the queue are accepted, and then the socket is closed.
        loop, late = asyncio.get_running_loop(), list[socket.socket]()
        for listening in sockets or ():
            drop_packets(listening)
            loop.remove_reader(listening)
            with contextlib.suppress(BlockingIOError):
                while True:
                    late.append(listening.accept()[0])
        for server in self.servers:
            server.close()
        for connection in late:
            connection.setblocking(False)
            await loop.connect_accepted_socket(self._protocol, connection)
        await asyncio.sleep(CLOSE_NOTICE_SECONDS if self.server_state.connections else 0)
        await super().shutdown(sockets)

    def _protocol(self) -> asyncio.Protocol:
        # As in uvicorn.Server.startup for the connections that uvicorn accepts itself.
        protocol: asyncio.Protocol = self.config.http_protocol_class(  # type: ignore[call-arg]
            config=self.config, server_state=self.server_state, app_state=self.lifespan.state
        )
        return protocol

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class _ConnectionCloser:
    """ASGI middleware that adds `connection: close` to every answer once `parting` is set.

    Otherwise a client could send its next request on a connection that is being closed, and lose the request.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self.parting = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_and_close(message: Message) -> None:
            if self.parting and message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", ()), (b"connection", b"close")]
            await send(message)

        await self._app(scope, receive, send_and_close)


def listen(host: str, port: int) -> socket.socket:
    """Open a listening socket; port 0 takes a free port. Raises a ConfigError if the port cannot be used."""
    try:
        listening = socket.create_server((host, port), backlog=BACKLOG)
    except (OSError, OverflowError) as error:
        why = error.strerror if isinstance(error, OSError) else "no port is higher than 65535"
        raise ConfigError(f"{host}:{port}: cannot listen there ({why}). Choose another port.") from error
    # Accepted connections inherit TCP_NODELAY. asyncio sets it only on sockets that it creates. Without it, Nagle's
    # algorithm holds the body of an answer until the client has acknowledged the head, 40 ms on Linux.
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    # Inherited too: a connection whose peer vanished ends after two or three minutes.
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, seconds in (("TCP_KEEPIDLE", 60), ("TCP_KEEPINTVL", 20), ("TCP_KEEPCNT", 4)):
        if hasattr(socket, option):
            listening.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), seconds)
    return listening


def drop_packets(listening: socket.socket) -> None:
    """Make the kernel drop new packets for this socket. A client sends them again, and then finds the socket
    closed."""
    # A classic BPF program of one instruction: accept 0 bytes of any packet. A kernel without filters, as in some
    # sandboxes, refuses it; then a connection that is opened just before the close is reset.
    # https://www.kernel.org/doc/html/latest/networking/filter.html
    take_nothing = ctypes.create_string_buffer(struct.pack("HBBI", BPF_RET, 0, 0, 0))
    with contextlib.suppress(OSError):
        program = struct.pack("HP", 1, ctypes.addressof(take_nothing))
        listening.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, program)


def server_config(app: Any, **options: Any) -> uvicorn.Config:
    """Build the uvicorn settings of all Qinglan servers: the request limits of http_limits.py, and no WebSockets."""
    return uvicorn.Config(
        app,
        http=BoundedHttpProtocol,
        ws="none",
        log_level="warning",
        access_log=False,
        timeout_keep_alive=IDLE_SECONDS,
        **options,
    )


async def serve_app(
    name: str, app: Any, listening: socket.socket, path: str = "", stopping: Callable[[], None] = lambda: None
) -> None:
    """Print {name: address}, then serve until SIGTERM or SIGINT.

    At the signal `stopping` is called first; then the requests under way are answered.
    """
    host, port = listening.getsockname()[:2]
    parting = _ConnectionCloser(app)
    server = _GracefulServer(server_config(parting, lifespan="off"))

    loop = asyncio.get_running_loop()

    def stop() -> None:
        stopping()
        parting.parting = True
        loop.call_later(
            CLOSE_NOTICE_SECONDS if server.server_state.connections else 0, setattr, server, "should_exit", True
        )

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop)
    gc.freeze()  # loaded modules and models stay: a full collection through them would delay every request
    say_json({name: f"http://{host}:{port}{path}"})
    await server.serve(sockets=[listening])


class ThreadedServer:
    """Server that runs an application in a separate thread, for a program whose main thread does other work."""

    def __init__(self, app: Any, listening: socket.socket) -> None:
        self._server = uvicorn.Server(server_config(app, lifespan="off", timeout_graceful_shutdown=1))
        self._thread = threading.Thread(
            target=self._server.run, kwargs={"sockets": [listening]}, name="http", daemon=True
        )
        self._thread.start()

    def shutdown(self) -> None:
        self._server.should_exit = True
        self._thread.join()


def log_to_stderr() -> None:
    """Log warnings and errors of all libraries, and no line for each request."""
    logging.basicConfig(
        level=logging.WARNING, format="%(asctime)s %(levelname)s %(name)s %(message)s", stream=sys.stderr
    )
