"""The real API server, over plain HTTP on loopback, with the one thing that simulated nodes lack: a pod's log."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.screens.pod_logs import PodLogs


@contextmanager
def log_gateway(admin: Any, logs: PodLogs) -> Iterator[str]:
    """Its URL. Whoever asks there is the admin."""
    pool, server = admin.rest_client.pool_manager, admin.configuration.host

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _answer(self) -> None:
            parts = urlsplit(self.path)
            try:
                if parts.path.endswith("/log"):
                    self._begin(200)
                    query = {name: values[0] for name, values in parse_qs(parts.query).items()}
                    self._send(logs.stream(query))
                else:
                    self._forward()
            except OSError:
                self.close_connection = True

        do_GET = do_POST = do_DELETE = _answer

        def _forward(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            headers = {"Content-Type": "application/json"}
            answer = pool.request(self.command, server + self.path, body=body, headers=headers, preload_content=False)
            try:
                self._begin(answer.status)
                self._send(answer.stream())
            finally:
                answer.close()

        def _begin(self, status: int) -> None:
            self.send_response(status)
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()

        def _send(self, chunks: Iterator[bytes]) -> None:
            for chunk in chunks:
                self.wfile.write(f"{len(chunk):x}\r\n".encode() + chunk + b"\r\n")
                self.wfile.flush()
            self.wfile.write(b"0\r\n\r\n")

        def log_message(self, *_: Any) -> None:
            pass

    http_server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    http_server.daemon_threads = True
    thread = threading.Thread(target=http_server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{http_server.server_address[1]}"
    finally:
        logs.end()
        http_server.shutdown()
        http_server.server_close()
        thread.join()
