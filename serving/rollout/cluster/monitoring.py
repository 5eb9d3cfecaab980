"""Log of the controller in JSON, and its pages /metrics and /healthz."""

import logging
import sys
import time
from datetime import UTC, datetime

import orjson

from qinglan.terminal import say_json
from serving.http_server import ThreadedServer, listen
from serving.operator_pages import operator_app
from serving.rollout.cluster.controller import Controller
from serving.rollout.cluster.lease import ClusterLease

STUCK_SECONDS = 60.0
"""Seconds without a tick after which the controller's loop counts as hung; it ticks twice a second."""


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


def start_monitoring_server(controller: Controller, lease: ClusterLease, host: str, port: int) -> ThreadedServer:
    """Serve /metrics and /healthz in a thread, and print the address as the only line on stdout."""

    def problem() -> str:
        # An outage of the API server does not count as a problem, because a restart would not end it.
        stuck = time.monotonic() - controller.ticked > STUCK_SECONDS
        return "the loop stands still" if stuck else lease.trouble

    listening = listen(host, port)
    server = ThreadedServer(operator_app(controller.metrics.registry, problem), listening)
    say_json({"rollout": f"http://{host}:{listening.getsockname()[1]}"})
    return server
