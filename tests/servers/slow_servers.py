"""Services that answer without an end, or a byte now and then, where no client counts the bytes of a body."""

import contextlib
import socket
from collections.abc import Iterator
from itertools import repeat
from threading import Event, Thread

PAUSE = 0.1
"""Seconds between two pieces: shorter than each test's read timeout."""

ENDS_AFTER = 15.0
"""Seconds after which a service ends by itself, so that a client without a deadline fails its test."""

OK = b"HTTP/1.1 200 OK\r\n"
CHUNKED = OK + b"transfer-encoding: chunked\r\n\r\n"
EARLY_HINTS = b"HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n"
GZIP_HEADER = b"\x1f\x8b\x08\x08" + bytes(6)  # the name of the file follows, up to a zero

SLOW = {
    "a status line": [bytes([byte]) for byte in b"HTTP/1.1 200 " + b"K" * 500],
    "a header": [OK + b"x: ", *repeat(b"a", 500)],
    "headers": [OK, *repeat(b"x: y\r\n", 90)],
    "early hints": list(repeat(EARLY_HINTS, 500)),
    "a chunk's extension": [CHUNKED + b"1;", *repeat(b"a", 500)],
    "a chunk's size": [CHUNKED, *repeat(b"0", 15)],
    "trailers": [CHUNKED + b"1\r\na\r\n0\r\n", *repeat(b"x: y\r\n", 90)],
    "a gzip header": [OK + b"content-encoding: gzip\r\n\r\n" + GZIP_HEADER, *repeat(b"a", 500)],
    "a body": [OK + b"content-length: 1000\r\n\r\n", *repeat(b" ", 500)],
    "silence": [],
}
"""Pieces of an answer, sent with a pause after each."""

FAST = {
    "early hints at once": list(repeat(EARLY_HINTS * 500, 100_000)),
    "a gzip header at once": [OK + b"content-encoding: gzip\r\n\r\n" + GZIP_HEADER, *repeat(b"a" * 65_536, 100_000)],
}
"""Gigabytes without a pause, so that no wait for a piece is long."""


@contextlib.contextmanager
def answering(answer: str) -> Iterator[str]:
    """A service that begins this answer to every request; yields its address."""
    over = Event()
    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = Thread(target=_serve, args=(server, answer, over), daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.getsockname()[1]}"
        finally:
            over.set()
            server.shutdown(socket.SHUT_RDWR)
            thread.join()


def _serve(server: socket.socket, answer: str, over: Event) -> None:
    while not over.is_set():
        with contextlib.suppress(OSError):
            connection, _ = server.accept()
            with connection:
                connection.recv(65_536)
                _send(connection, answer, over)


def _send(connection: socket.socket, answer: str, over: Event) -> None:
    connection.settimeout(ENDS_AFTER)
    for piece in (SLOW | FAST)[answer]:
        connection.sendall(piece)
        if over.wait(PAUSE if answer in SLOW else 0):
            return
    over.wait(ENDS_AFTER)
