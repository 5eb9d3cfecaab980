"""The controller's log in JSON, and its /metrics and /healthz."""

import logging
import sys
import threading
import time
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import orjson
from prometheus_client import generate_latest

from qinglan.errors import ConfigError
from qinglan.terminal import say_json
from serving.rollout.cluster.controller import Controller
from serving.rollout.cluster.lease import ClusterLease

STUCK_SECONDS = 60.0
"""The loop ticks twice a second; after so long without a tick it hangs."""


class JsonFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        at = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        entry = {"at": at, "level": record.levelname.lower(), "said": record.getMessage()}
        if record.exc_info:
            entry["error"] = self.formatException(record.exc_info)
        return orjson.dumps(entry).decode()


def configure_json_logging() -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter())
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
    logging.getLogger("httpx").setLevel(logging.WARNING)


def start_monitoring_server(controller: Controller, lease: ClusterLease, host: str, port: int) -> ThreadingHTTPServer:
    """Serve in a thread; the address is the one line on stdout."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path == "/metrics":
                self._answer(200, generate_latest(controller.metrics.registry))
            elif self.path == "/healthz":
                trouble = _health_problem(controller, lease)
                self._answer(503 if trouble else 200, f"{trouble or 'well'}\n".encode())
            else:
                self._answer(404, b"there are /metrics and /healthz\n")

        def _answer(self, status: int, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Log nothing: probes and scrapes are no news."""

    try:
        server = ThreadingHTTPServer((host, port), Handler)
    except OSError as error:
        raise ConfigError(
            f"--host {host} --port {port}: {error.strerror}. Choose another, or end the program that has it."
        ) from error
    threading.Thread(target=server.serve_forever, name="monitoring", daemon=True).start()
    say_json({"rollout": f"http://{host}:{server.server_address[1]}"})
    return server


def _health_problem(controller: Controller, lease: ClusterLease) -> str:
    """The reason why the controller cannot work; an outage of the API server is none, since no restart mends it."""
    if time.monotonic() - controller.ticked > STUCK_SECONDS:
        return "the loop stands still"
    return lease.trouble
