"""Clients that keep their connections and ask until nobody listens any more."""

from http.client import HTTPConnection
from typing import NamedTuple


class Answer(NamedTuple):
    status: int
    body: bytes
    last: bool
    """True if the answer told its client that the connection ends."""


def ask_until_nobody_listens(port: int | None, path: str, body: bytes) -> list[Answer]:
    """Every answer to one client. It raises where a request was taken and then lost.

    A client that is slow on a busy machine misses the server's last word, and finds its connection closed while it
    writes: nobody took that request, so it asks anew, as any client would.
    """
    connection, got = HTTPConnection("127.0.0.1", port, timeout=60), list[Answer]()
    while True:
        try:
            connection.request("POST", path, body, {"content-type": "application/json"})
        except ConnectionRefusedError:
            return got
        except (ConnectionResetError, BrokenPipeError):
            connection.close()
            continue
        answer = connection.getresponse()
        got.append(Answer(answer.status, answer.read(), answer.headers["connection"] == "close"))
