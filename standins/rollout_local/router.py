"""Splits users' requests between two models, and gives nobody a canary's failure.

    one request id always goes the same way
    what the canary fails is asked of the stable model again, within the deadline: rewriting changes nothing, so that
    asking twice does no harm, and no user gets an error that the stable model would not have given
    `x-qinglan-tag: canary` asks the canary alone, as Knative's tag URL does; such a request is no user's

Requests are counted here, where the caller is: a process that dies or hangs counts nothing. The stable model's second
chances are not among its requests: it did not draw them, and a question that nobody can answer would count against it
twice and excuse the canary.
"""

import asyncio
import hashlib
import re
import time
import uuid
from collections import Counter as Tally
from collections.abc import Iterable
from typing import NamedTuple

import httpx
from prometheus_client import CollectorRegistry, Counter, generate_latest
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from serving.http_server import client_disconnected
from serving.request_errors import BodyLimit

REQUEST_ID, TAG, CANARY = "x-request-id", "x-qinglan-tag", "canary"
QUESTION = re.compile(r"/v1/models/[^/]+:predict|/v2/models/[^/]+/infer|/openai/v1/chat/completions")
LARGEST_BODY = 1_000_000
DROPPED_HEADERS = frozenset({
    "host", "connection", "keep-alive", "transfer-encoding", "te", "trailer", "upgrade", "content-length",
    "content-encoding", "accept-encoding", "date", "server", TAG,
})  # fmt: skip
"""Of one connection, or said anew by each side."""

ANSWERED, FAILED, REFUSED, LATE, BUSY = "answered", "failed", "refused", "late", "busy"
OUTCOMES = (ANSWERED, FAILED, REFUSED, LATE, BUSY)
OF_STATUS = {200: ANSWERED, 429: BUSY, 504: LATE}
PARTS = 10_000


class Backend(NamedTuple):
    """To one model."""

    uri: str
    version: str
    url: str
    """Empty while its server is away."""
    percent: int


class Backends(NamedTuple):
    stable: Backend
    canary: Backend | None = None
    tagged: Backend | None = None
    """Whom `x-qinglan-tag: canary` asks, at any share."""


class Attempt(NamedTuple):
    """One attempt's answer, and how it counts."""

    response: Response
    outcome: str


class Router:
    """The ways are replaced whole while requests run."""

    def __init__(self, deadline_seconds: float = 10.0) -> None:
        self.backends: Backends | None = None
        self._deadline = deadline_seconds
        self._in_flight: Tally[str] = Tally()
        self._idle_events: dict[str, asyncio.Event] = {}
        self._http = httpx.AsyncClient(
            trust_env=False, timeout=None, limits=httpx.Limits(max_connections=None, keepalive_expiry=5.0)
        )
        self.registry = CollectorRegistry()
        self._requests = Counter(
            "qinglan_rewriter_requests", "Users' requests by the model drawn for them, and how it dealt with them.",
            ["version", "outcome"], registry=self.registry,
        )  # fmt: skip
        self._repeats = Counter(
            "qinglan_router_repeats", "Requests that the stable model answered in the canary's place.", ["version"],
            registry=self.registry,
        )  # fmt: skip
        routes = [
            Route("/metrics", self._metrics, methods=["GET"]),
            Route("/{path:path}", self._route, methods=["GET", "POST"]),
        ]
        self.app = Starlette(
            routes=routes, middleware=[Middleware(BodyLimit, largest=LARGEST_BODY)],
            exception_handlers={ClientDisconnect: client_disconnected},
        )  # fmt: skip

    def set_backends(self, backends: Backends | None) -> None:
        """From now on these; every series of theirs is there from the start."""
        for backend in () if backends is None else filter(None, backends):
            self._repeats.labels(backend.version)
            for outcome in OUTCOMES:
                self._requests.labels(backend.version, outcome)
        self.backends = backends

    async def wait_until_idle(self, uri: str) -> None:
        """When nobody waits for its answer any more; it must have no way already."""
        if self._in_flight[uri]:
            await self._idle_events.setdefault(uri, asyncio.Event()).wait()

    async def aclose(self) -> None:
        await self._http.aclose()

    async def _metrics(self, _: Request) -> Response:
        return Response(generate_latest(self.registry), media_type="text/plain; version=0.0.4")

    async def _route(self, request: Request) -> Response:
        until = time.monotonic() + self._deadline
        forwarded = await _forwarded_request(request)
        backends = (
            self.backends
        )  # after the body is here: what has no way any more may end as soon as nobody waits for it
        if backends is None:
            return _error_response(503, "No model is ready yet. Ask again.")
        if request.headers.get(TAG) == CANARY:
            return await self._ask_tagged(backends, forwarded, until)
        if request.method != "POST" or not QUESTION.fullmatch(request.url.path):
            return (await self._request(backends.stable, forwarded, until)).response
        if backends.canary and routes_to_canary(forwarded.headers[REQUEST_ID], backends.canary.percent):
            return await self._ask_canary(backends.canary, forwarded, until)
        attempt = await self._request(backends.stable, forwarded, until)
        self._requests.labels(backends.stable.version, attempt.outcome).inc()
        return attempt.response

    async def _ask_tagged(self, backends: Backends, forwarded: "ForwardedRequest", until: float) -> Response:
        if backends.tagged is None:
            return _error_response(404, "There is no canary.")
        return (await self._request(backends.tagged, forwarded, until)).response

    async def _ask_canary(self, canary: Backend, forwarded: "ForwardedRequest", until: float) -> Response:
        """Half of the time is the canary's, so that the other half is left for the stable model."""
        first = await self._request(canary, forwarded, until - self._deadline / 2)
        if first.outcome == ANSWERED:
            self._requests.labels(canary.version, ANSWERED).inc()
            return first.response
        assert self.backends, "there was a way"
        second = await self._request(self.backends.stable, forwarded, until)  # who is stable by now
        self._repeats.labels(canary.version).inc()
        # A question that only the canary refuses is one that it fails.
        own_fault = first.outcome != REFUSED or second.outcome == ANSWERED
        outcome = (FAILED if first.outcome == REFUSED else first.outcome) if own_fault else REFUSED
        self._requests.labels(canary.version, outcome).inc()
        return second.response

    async def _request(self, backend: Backend, forwarded: "ForwardedRequest", until: float) -> Attempt:
        self._in_flight[backend.uri] += 1
        try:
            async with asyncio.timeout(max(until - time.monotonic(), 0.0)):
                response = await self._http.request(
                    forwarded.method,
                    f"{backend.url}{forwarded.target}",
                    headers=forwarded.headers,
                    content=forwarded.body,
                )
        except TimeoutError:
            return Attempt(_error_response(504, "The model did not answer in time."), LATE)
        except (httpx.TransportError, httpx.UnsupportedProtocol):
            return Attempt(_error_response(502, "The model cannot be reached."), FAILED)
        finally:
            self._finish(backend.uri)
        status = response.status_code
        outcome = OF_STATUS.get(status) or (ANSWERED if status < 400 else REFUSED if status < 500 else FAILED)
        return Attempt(Response(response.content, status, _forwarded_headers(response.headers.items())), outcome)

    def _finish(self, uri: str) -> None:
        self._in_flight[uri] -= 1
        if not self._in_flight[uri] and uri in self._idle_events:
            self._idle_events.pop(uri).set()


class ForwardedRequest(NamedTuple):
    """A request as it is handed on."""

    method: str
    target: str
    headers: dict[str, str]
    body: bytes


def routes_to_canary(request_id: str, percent: int) -> bool:
    """Whether the canary answers it; who is drawn at 5 % is drawn at 20 %, too."""
    number = int.from_bytes(hashlib.sha256(f"way {request_id}".encode()).digest()[:8])
    return number % PARTS < percent * PARTS // 100


async def _forwarded_request(request: Request) -> ForwardedRequest:
    headers = {**_forwarded_headers(request.headers.items()), "accept-encoding": "identity"}
    headers.setdefault(REQUEST_ID, uuid.uuid4().hex)
    target = request.url.path + (f"?{request.url.query}" if request.url.query else "")
    return ForwardedRequest(request.method, target, headers, await request.body())


def _forwarded_headers(headers: Iterable[tuple[str, str]]) -> dict[str, str]:
    return {name: value for name, value in headers if name.lower() not in DROPPED_HEADERS}


def _error_response(status: int, message: str) -> Response:
    return JSONResponse({"error": message}, status)
