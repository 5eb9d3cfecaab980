"""Connections of clients without coroutines that wait no longer than the deadline of the answer that is being read.

httpcore's read timeout begins anew with each byte, so a service that sends a byte now and then holds a thread for
ever. Every wait of these connections ends at the deadline instead.

    with held(Deadline(seconds)):
        DeadlineTransport(context, limits, ()).handle_request(request)
"""

import ssl
from collections.abc import Iterable
from typing import Any

import httpcore2
import httpx2

from qinglan.http.deadlines import held_deadline

SocketOption = tuple[int, int, int]


class DeadlineTransport(httpx2.HTTPTransport):
    """httpx2's transport over these connections."""

    def __init__(
        self, context: ssl.SSLContext, limits: httpx2.Limits, socket_options: Iterable[SocketOption]
    ) -> None:
        super().__init__(verify=context, trust_env=False)
        # httpx2 has no argument for httpcore's network_backend: https://www.encode.io/httpcore/network-backends/
        self._pool = httpcore2.ConnectionPool(
            ssl_context=context,
            max_connections=limits.max_connections,
            max_keepalive_connections=limits.max_keepalive_connections,
            keepalive_expiry=limits.keepalive_expiry,
            socket_options=socket_options,
            network_backend=_DeadlineBackend(),
        )


class _DeadlineBackend(httpcore2.SyncBackend):
    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore2.NetworkStream:
        return _DeadlineStream(super().connect_tcp(host, port, _shorter(timeout), local_address, socket_options))


class _DeadlineStream(httpcore2.NetworkStream):
    def __init__(self, inner: httpcore2.NetworkStream) -> None:
        self._inner = inner

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        return self._inner.read(max_bytes, _shorter(timeout))

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._inner.write(buffer, _shorter(timeout))

    def close(self) -> None:
        self._inner.close()

    def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore2.NetworkStream:
        return _DeadlineStream(self._inner.start_tls(ssl_context, server_hostname, _shorter(timeout)))

    def get_extra_info(self, info: str) -> Any:
        return self._inner.get_extra_info(info)


def _shorter(timeout: float | None) -> float | None:
    """The timeout of a wait, cut to what is left; an httpx2.ReadTimeout if nothing is."""
    deadline = held_deadline()
    left = deadline.left() if deadline else None
    if deadline is None or left is None:
        return timeout
    if left <= 0:
        raise deadline.error()
    return left if timeout is None else min(timeout, left)
