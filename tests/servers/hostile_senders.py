"""Clients that send headers and bodies without an end, or too slowly."""

import contextlib
import socket
from collections.abc import Iterator
from http.client import HTTPResponse
from itertools import repeat
from urllib.parse import urlsplit

LINE = b"POST / HTTP/1.1\r\nhost: a\r\n"
PIECE = b"a" * 65_536
ENDLESS = {
    "a header": [LINE + b"x: ", *repeat(PIECE, 1000)],
    "a request line": [b"GET /", *repeat(PIECE, 1000)],
    "headers": [LINE, *repeat(b"x: y\r\n" * 10_000, 1000)],
    "a chunk's extension": [LINE + b"transfer-encoding: chunked\r\n\r\n5;", *repeat(PIECE, 1000)],
    "a trailer": [LINE + b"transfer-encoding: chunked\r\n\r\n1\r\na\r\n0\r\nx: ", *repeat(PIECE, 1000)],
    "trailers": [LINE + b"transfer-encoding: chunked\r\n\r\n1\r\na\r\n0\r\n", *repeat(b"x: y\r\n" * 10_000, 1000)],
}
"""60 MB each, in pieces."""


@contextlib.contextmanager
def connected(url: str) -> Iterator[socket.socket]:
    address = urlsplit(url)
    with socket.create_connection((str(address.hostname), address.port or 80), timeout=60) as connection:
        yield connection


def send(url: str, pieces: list[bytes]) -> tuple[int, bytes]:
    """Bytes sent until the server ended the connection or had all, and its answers until it ended."""
    sent, answer = 0, b""
    with connected(url) as connection, contextlib.suppress(ConnectionError):
        with contextlib.suppress(ConnectionError):
            for piece in pieces:
                connection.sendall(piece)
                sent += len(piece)
        while received := connection.recv(65_536):
            answer += received
    return sent, answer


def read_response(connection: socket.socket) -> tuple[int, bytes]:
    """Status and body of one response, whose head may come before its body."""
    response = HTTPResponse(connection)
    response.begin()
    return response.status, response.read()


def assert_endless_header_is_cut(url: str) -> None:
    """A server takes what its sockets hold of an endless header, and ends."""
    sent, _ = send(url, ENDLESS["a header"])

    assert sent < 20_000_000, f"{sent} bytes of an endless header were taken"
