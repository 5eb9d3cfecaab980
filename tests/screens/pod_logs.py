"""A stand-in for the endpoint of a pod's log, over real HTTP: times, `sinceTime`, `follow`, streams that break."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit


class PodLogs:
    """The lines of one pod, each with its time as its node wrote it."""

    def __init__(self) -> None:
        self.lines: list[tuple[str, str]] = []
        self.ended = False
        self.breaks_after: int | None = None
        """So many lines into a stream it breaks, once."""

        self.requests: list[dict[str, str]] = []
        self.url = ""
        self.changed = threading.Condition()

    def say(self, stamp: str, text: str) -> None:
        with self.changed:
            self.lines.append((stamp, text))
            self.changed.notify_all()

    def end(self) -> None:
        with self.changed:
            self.ended = True
            self.changed.notify_all()

    def stream(self, query: dict[str, str]) -> Iterator[bytes]:
        """As the kubelet does it: `sinceTime` is in whole seconds, and what is of that second comes again."""
        self.requests.append(query)
        since, sent = query.get("sinceTime", "")[:19], 0
        while True:
            with self.changed:
                while sent >= len(self.lines) and self._open(query):
                    self.changed.wait(0.2)
                if sent >= len(self.lines):
                    return
                stamp, text = self.lines[sent]
            sent += 1
            if stamp[:19] >= since:
                yield f"{stamp} {text}\n".encode()
            if self.breaks_after is not None and sent >= self.breaks_after:
                self.breaks_after = None
                raise ConnectionAbortedError

    def _open(self, query: dict[str, str]) -> bool:
        return "follow" in query and not self.ended


@contextmanager
def pod_logs() -> Iterator[PodLogs]:
    logs = PodLogs()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            query = {name: values[0] for name, values in parse_qs(urlsplit(self.path).query).items()}
            try:
                for line in logs.stream(query):
                    self.wfile.write(f"{len(line):x}\r\n".encode() + line + b"\r\n")
                    self.wfile.flush()
                self.wfile.write(b"0\r\n\r\n")
            except OSError:
                self.close_connection = True

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    logs.url = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield logs
    finally:
        logs.end()
        server.shutdown()
        server.server_close()
        thread.join()
