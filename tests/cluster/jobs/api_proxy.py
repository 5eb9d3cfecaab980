"""A wire to an API server that a test can cut: TCP on loopback, TLS passes through untouched."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any
from urllib.parse import urlsplit

READ = 1 << 16


class Wire:
    def __init__(self, target: tuple[str, int]) -> None:
        self.target, self.whole = target, True
        self.connected = 0
        """Connections ever made: what a watch costs is seen here."""

        self._ends: list[socket.socket] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self._listener.getsockname()[1]}"

    def cut(self) -> None:
        """Every connection breaks, and new ones do at once."""
        self.whole = False
        for end in self._ends:
            _shut(end)
        self._ends.clear()

    def mend(self) -> None:
        self.whole = True

    def close(self) -> None:
        self.cut()
        _shut(self._listener)

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                self.connected += 1
                if not self.whole:
                    near.close()
                    continue
                far = socket.create_connection(self.target)
                self._ends += [near, far]
                for pair in ((near, far), (far, near)):
                    threading.Thread(target=_pump, args=pair, daemon=True).start()


def _pump(source: socket.socket, sink: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(READ):
            sink.sendall(data)
    _shut(source)
    _shut(sink)


def _shut(end: socket.socket) -> None:
    with suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)
    end.close()


@contextmanager
def wire(client: Any) -> Iterator[Wire]:
    """Between this client and its server, from now on."""
    address = urlsplit(client.configuration.host)
    wire = Wire((address.hostname or "", address.port or 443))
    client.configuration.host = wire.url
    try:
        yield wire
    finally:
        wire.close()
