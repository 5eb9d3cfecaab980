"""A way to S3 that counts what goes over it and can be made to fail: between a store and a real server."""

import http.client
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import NamedTuple
from urllib.parse import parse_qs, urlsplit

HOP_BY_HOP = {"connection", "transfer-encoding", "content-length", "keep-alive", "date", "server"}


class Request(NamedTuple):
    """One that came by."""

    method: str
    path: str
    query: dict[str, list[str]]
    size: int

    @property
    def part(self) -> int:
        """The number of the part of an upload that this sends; 0 if it sends none."""
        return int(self.query.get("partNumber", ["0"])[0]) if self.method == "PUT" else 0


class Answer(NamedTuple):
    """An answer in place of the server's."""

    status: int
    code: str

    @property
    def body(self) -> bytes:
        return f"<Error><Code>{self.code}</Code><Message>said by a test</Message></Error>".encode()


class Proxy(ThreadingHTTPServer):
    """`meddle` may answer in the server's place, or do something before a request goes on."""

    daemon_threads = True
    block_on_close = False

    def __init__(self, endpoint: str) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.server = urlsplit(endpoint).netloc
        self.meddle: Callable[[Request], Answer | None] = lambda request: None
        self.requests: list[Request] = []

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def point_at(self, endpoint: str) -> None:
        """Another server, or the same one at another port."""
        self.server = urlsplit(endpoint).netloc

    def handle_error(self, request: object, client_address: object) -> None:
        """Whoever is killed hangs up; no news."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Proxy

    def answer(self) -> None:
        split = urlsplit(self.path)
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        request = Request(self.command, split.path, parse_qs(split.query, keep_blank_values=True), len(body))
        self.server.requests.append(request)
        if replacement := self.server.meddle(request):
            return self._say(replacement.status, {"Content-Type": "application/xml"}, replacement.body)
        with closing(http.client.HTTPConnection(self.server.server, timeout=60)) as onward:
            try:
                onward.request(self.command, self.path, body, dict(self.headers))
                with onward.getresponse() as response:
                    self._hand_back(response)
            except (OSError, http.client.HTTPException):  # no server there: the client finds nobody either
                self.close_connection = True

    do_GET = do_PUT = do_HEAD = do_POST = do_DELETE = answer

    def _hand_back(self, response: http.client.HTTPResponse) -> None:
        headers = {name: value for name, value in response.headers.items() if name.lower() not in HOP_BY_HOP}
        if self.command == "HEAD":
            headers["Content-Length"] = response.headers.get("Content-Length", "0")
        self._say(response.status, headers, response.read())

    def _say(self, status: int, headers: dict[str, str], body: bytes) -> None:
        self.send_response_only(status)
        if self.command != "HEAD" and status != 204:
            headers["Content-Length"] = str(len(body))
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def proxy(endpoint: str) -> Iterator[Proxy]:
    with Proxy(endpoint) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield server
        server.shutdown()
