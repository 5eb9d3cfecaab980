"""An ingress gateway on loopback: it sends a request on by its Host header alone, and remembers what it was asked."""

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import NamedTuple

import httpx

HOP = {"host", "connection", "content-length", "transfer-encoding", "keep-alive"}


class Received(NamedTuple):
    host: str
    path: str
    headers: Mapping[str, str]


class Ingress(NamedTuple):
    url: str
    routes: dict[str, str]
    """Address of each host's pods; an unknown host is a 404, as at Istio's gateway."""

    requests: list[Received]


@contextmanager
def ingress() -> Iterator[Ingress]:
    routes: dict[str, str] = {}
    requests: list[Received] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            host = self.headers["host"]
            requests.append(Received(host, self.path, {name.lower(): value for name, value in self.headers.items()}))
            if host not in routes:
                self._answer(404, b"")
                return
            stored = {name: value for name, value in self.headers.items() if name.lower() not in HOP}
            answer = httpx.post(routes[host] + self.path, content=body, headers=stored | {"host": host},
                                trust_env=False, timeout=60)  # fmt: skip
            self._answer(answer.status_code, answer.content)

        def _answer(self, status: int, body: bytes) -> None:
            self.send_response(status)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield Ingress(f"http://127.0.0.1:{server.server_address[1]}", routes, requests)
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
