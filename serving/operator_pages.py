"""Application with only /metrics and /healthz, for the rollout's controller and its shadow."""

from collections.abc import Callable

from prometheus_client import CollectorRegistry, generate_latest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

WELL = PlainTextResponse("well\n")


def operator_app(
    registry: CollectorRegistry, problem: Callable[[], str] = str, healthy: Response = WELL
) -> Starlette:
    """Build the application. `problem` returns the reason why the program cannot work, or "" if it can."""

    async def metrics(_: Request) -> Response:
        return PlainTextResponse(generate_latest(registry), media_type="text/plain; version=0.0.4")

    async def healthz(_: Request) -> Response:
        why = problem()
        return PlainTextResponse(f"{why}\n", 503) if why else healthy

    return Starlette(routes=[Route("/metrics", metrics), Route("/healthz", healthz)])
