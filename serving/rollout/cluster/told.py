"""What the controller says of itself: a log in JSON, /metrics and /healthz."""

import json
import logging
import sys
import threading
import time
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import orjson
from prometheus_client import generate_latest

from serving.rollout.cluster.controller import Controller

STUCK_SECONDS = 60.0
"""The loop ticks twice a second; one that has not for so long will not again."""


class JsonLines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        at = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        told = {"at": at, "level": record.levelname.lower(), "said": record.getMessage()}
        if record.exc_info:
            told["error"] = self.formatException(record.exc_info)
        return orjson.dumps(told).decode()


def log_json() -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines())
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
    logging.getLogger("httpx").setLevel(logging.WARNING)


def open_door(controller: Controller, host: str, port: int) -> ThreadingHTTPServer:
    """In a thread of its own; where it listens is the one line on stdout."""

    class Door(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path == "/metrics":
                self._answer(200, generate_latest(controller.metrics.registry))
            elif self.path == "/healthz":
                well = time.monotonic() - controller.ticked < STUCK_SECONDS
                self._answer(200 if well else 503, b"well\n" if well else b"the loop stands still\n")
            else:
                self._answer(404, b"there are /metrics and /healthz\n")

        def _answer(self, status: int, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Probes and scrapes are no news."""

    server = ThreadingHTTPServer((host, port), Door)
    threading.Thread(target=server.serve_forever, name="door", daemon=True).start()
    print(json.dumps({"rollout": f"http://{host}:{server.server_address[1]}"}), flush=True)
    return server
