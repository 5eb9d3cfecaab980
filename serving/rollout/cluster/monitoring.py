"""The controller's log in JSON, and its /metrics and /healthz."""

import logging
import sys
import time
from datetime import UTC, datetime

import orjson
from prometheus_client import generate_latest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from qinglan.terminal import say_json
from serving.http_server import ThreadedServer, listen
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


def start_monitoring_server(controller: Controller, lease: ClusterLease, host: str, port: int) -> ThreadedServer:
    """Serve in a thread; the address is the one line on stdout."""

    async def metrics_page(_: Request) -> Response:
        return PlainTextResponse(generate_latest(controller.metrics.registry), media_type="text/plain; version=0.0.4")

    async def healthz(_: Request) -> Response:
        trouble = _health_problem(controller, lease)
        return PlainTextResponse(f"{trouble or 'well'}\n", 503 if trouble else 200)

    listening = listen(host, port)
    server = ThreadedServer(
        Starlette(routes=[Route("/metrics", metrics_page), Route("/healthz", healthz)]), listening
    )
    say_json({"rollout": f"http://{host}:{listening.getsockname()[1]}"})
    return server


def _health_problem(controller: Controller, lease: ClusterLease) -> str:
    """The reason why the controller cannot work; an outage of the API server is none, since no restart mends it."""
    if time.monotonic() - controller.ticked > STUCK_SECONDS:
        return "the loop stands still"
    return lease.trouble
