"""Rendezvous of a Ray cluster: each worker holds a connection to the head, so each notices if the other ends.

Messages are lines of JSON.

- A worker sends `{"token", "rank", "pod"}` first, and `{"lost": WHY}` if its Ray ends too early.
- The head sends `{"ray": ADDRESS}`, `{"complete": true}` once Ray has all nodes, and `{"ended": CODE}` at the end.
"""

import contextlib
import hmac
import json
import select
import socket
import threading
import time
from collections.abc import Mapping
from typing import Any

LONGEST_LINE = 4096
HELLO_SECONDS = 10.0
KEEPALIVE_OPTIONS = ((socket.TCP_KEEPIDLE, 10), (socket.TCP_KEEPINTVL, 5), (socket.TCP_KEEPCNT, 4))
"""TCP keepalive options in seconds and probes.

A machine that vanishes does not close its connection; it counts as lost after 10 + 4 * 5 s.
https://man7.org/linux/man-pages/man7/tcp.7.html
"""


class RendezvousServer:
    """Server of the head, to which each worker connects."""

    def __init__(self, port: int, token: str, nodes: int) -> None:
        self._token, self._nodes = token, nodes
        self._lines: dict[int, JsonConnection] = {}
        self._lock = threading.Lock()
        self.lost: dict[int, str] = {}
        """Reason for the loss of each lost worker, by rank."""
        self._listening = socket.create_server(("", port))
        threading.Thread(target=self._accept, daemon=True).start()

    def missing(self) -> list[int]:
        """Return the ranks of the workers that have not connected yet."""
        with self._lock:
            return [rank for rank in range(1, self._nodes) if rank not in self._lines]

    def my_address(self) -> str:
        """Return the address at which a worker has reached this machine."""
        with self._lock:
            return next(iter(self._lines.values())).own_address()

    def tell(self, word: Mapping[str, Any]) -> None:
        with self._lock:
            lines = list(self._lines.values())
        for line in lines:
            with contextlib.suppress(OSError):
                line.say(word)

    def dismiss(self, code: int, seconds: float) -> None:
        """Send the exit code to the workers, and wait up to `seconds` until they have ended too."""
        self.tell({"ended": code})
        until = time.monotonic() + seconds
        while time.monotonic() < until and len(self.lost) < len(self._lines):
            time.sleep(0.1)
        self._listening.close()
        with self._lock:
            for line in self._lines.values():
                line.close()

    def _accept(self) -> None:
        """Accept connections until the server is closed, even if one of them breaks at once."""
        while self._listening.fileno() >= 0:
            try:
                client, _ = self._listening.accept()
            except OSError:
                time.sleep(0.1)  # such as too many open files
                continue
            try:
                connection = JsonConnection(client)
            except OSError:  # such as a peer that is gone
                client.close()
                continue
            threading.Thread(target=self._follow, args=(connection,), daemon=True).start()

    def _follow(self, line: "JsonConnection") -> None:
        """Follow one worker from its first message to its end."""
        hello = line.next(HELLO_SECONDS) or {}
        rank = hello.get("rank")
        # compare_digest takes the same time for every wrong token, so the time reveals nothing about the right one.
        authorised = hmac.compare_digest(str(hello.get("token")).encode(errors="replace"), self._token.encode())
        if not authorised or not isinstance(rank, int) or not 0 < rank < self._nodes:
            line.close()
            return
        with self._lock:
            self._lines[rank] = line
        while (word := line.next(None)) is not None:
            if "lost" in word:
                self.lost[rank] = str(word["lost"])
        self.lost.setdefault(rank, "its connection closed")


class JsonConnection:
    """Connection that sends and receives messages as lines of JSON over a socket."""

    def __init__(self, connected: socket.socket) -> None:
        self._socket, self._rest = connected, b""
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, value in KEEPALIVE_OPTIONS:
            connected.setsockopt(socket.IPPROTO_TCP, option, value)

    def own_address(self) -> str:
        return str(self._socket.getsockname()[0])

    def say(self, word: Mapping[str, Any]) -> None:
        self._socket.sendall(json.dumps(word).encode() + b"\n")

    def ready(self, seconds: float) -> bool:
        """Wait up to `seconds`; True if a message, or the end of the connection, can be read."""
        return b"\n" in self._rest or bool(select.select([self._socket], [], [], seconds)[0])

    def next(self, seconds: float | None) -> dict[str, Any] | None:
        """Read the next message; None if the connection is closed or no valid message arrives in time."""
        try:
            self._socket.settimeout(seconds)
            while b"\n" not in self._rest:
                read = self._socket.recv(LONGEST_LINE)
                if not read or len(self._rest) > LONGEST_LINE:
                    return None
                self._rest += read
            line, self._rest = self._rest.split(b"\n", 1)
            word = json.loads(line)
        except (OSError, ValueError):
            return None
        return word if isinstance(word, dict) else None

    def close(self) -> None:
        self._socket.close()


def connect_to_head(host: str, port: int, hello: Mapping[str, Any], seconds: float) -> JsonConnection | None:
    """Connect a worker to the head; returns None if no head answers within `seconds`."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        try:  # the name resolves once the head's pod has an address
            line = JsonConnection(socket.create_connection((host, port), timeout=HELLO_SECONDS))
            line.say(hello)
        except OSError:
            time.sleep(min(1.0, max(0.0, until - time.monotonic())))
        else:
            return line
    return None
