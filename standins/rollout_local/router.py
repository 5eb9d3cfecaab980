"""Split users' requests between two models, and protect users from a canary's failures.

    - The same request id always goes to the same model.
    - A request that fails at the canary is sent to the stable model, within the deadline. So users get only errors
      that the stable model would also give. Requests may be sent twice, because rewriting has no side effects.

Requests are counted here, because a server that dies or hangs counts nothing. A repeated request is not counted for
the stable model, to which it was not assigned. Otherwise a question that no model can answer would count against the
stable model too often.
"""

import asyncio
import hashlib
import re
import time
import uuid
from collections import Counter as Tally
from collections.abc import Iterable
from typing import NamedTuple

import httpx2
from prometheus_client import CollectorRegistry, Counter, generate_latest
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from qinglan.http.http_client import async_client
from serving.http_server import client_disconnected
from serving.request_errors import BodyLimit

REQUEST_ID = "x-request-id"
QUESTION = re.compile(r"/v1/models/[^/]+:predict|/v2/models/[^/]+/infer|/openai/v1/chat/completions")
LARGEST_BODY = 1_000_000
DROPPED_HEADERS = frozenset({
    "host", "connection", "keep-alive", "transfer-encoding", "te", "trailer", "upgrade", "content-length",
    "content-encoding", "accept-encoding", "date", "server",
})  # fmt: skip
"""Headers that are not forwarded, because they belong to one connection or each side sets them itself."""

ANSWERED, FAILED, REFUSED, LATE, BUSY = "answered", "failed", "refused", "late", "busy"
OUTCOMES = (ANSWERED, FAILED, REFUSED, LATE, BUSY)
STATUS_OUTCOMES = {200: ANSWERED, 429: BUSY, 504: LATE}
BUCKETS = 10_000


class Backend(NamedTuple):
    uri: str
    version: str
    url: str
    """URL of the server; empty while the server does not answer."""
    percent: int


class Backends(NamedTuple):
    stable: Backend
    canary: Backend | None = None


class Attempt(NamedTuple):
    """Answer of one backend, with the outcome under which it is counted."""

    response: Response
    outcome: str


class Router:
    """Router of requests. Its backends can be replaced, all at once, while requests run."""

    def __init__(self, deadline_seconds: float = 10.0) -> None:
        self.backends: Backends | None = None
        self._deadline = deadline_seconds
        self._in_flight: Tally[str] = Tally()
        self._idle_events: dict[str, asyncio.Event] = {}
        self._http = async_client(timeout=None)  # the model's own deadline holds
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
        """Use these backends from now on; their metrics start at 0."""
        for backend in () if backends is None else filter(None, backends):
            self._repeats.labels(backend.version)
            for outcome in OUTCOMES:
                self._requests.labels(backend.version, outcome)
        self.backends = backends

    async def wait_until_idle(self, uri: str) -> None:
        """Wait until no request to this URI is under way. The URI must be removed from the backends first."""
        if self._in_flight[uri]:
            await self._idle_events.setdefault(uri, asyncio.Event()).wait()

    async def aclose(self) -> None:
        await self._http.aclose()

    async def _metrics(self, _: Request) -> Response:
        return Response(generate_latest(self.registry), media_type="text/plain; version=0.0.4")

    async def _route(self, request: Request) -> Response:
        until = time.monotonic() + self._deadline
        forwarded = await _forwarded_request(request)
        backends = self.backends  # read after the body has arrived: a removed backend ends as soon as it is idle
        if backends is None:
            return _error_response(503, "No model is ready yet. Ask again.")
        if request.method != "POST" or not QUESTION.fullmatch(request.url.path):
            return (await self._request(backends.stable, forwarded, until)).response
        if backends.canary and routes_to_canary(forwarded.headers[REQUEST_ID], backends.canary.percent):
            return await self._ask_canary(backends.canary, forwarded, until)
        attempt = await self._request(backends.stable, forwarded, until)
        self._requests.labels(backends.stable.version, attempt.outcome).inc()
        return attempt.response

    async def _ask_canary(self, canary: Backend, forwarded: "ForwardedRequest", until: float) -> Response:
        """Send a request to the canary with half of the deadline; if it fails, to the stable model with the rest."""
        first = await self._request(canary, forwarded, until - self._deadline / 2)
        backends = self.backends  # read again: the backends may have been replaced or removed meanwhile
        if first.outcome == ANSWERED or backends is None:
            self._requests.labels(canary.version, first.outcome).inc()
            return first.response
        second = await self._request(backends.stable, forwarded, until)
        self._repeats.labels(canary.version).inc()
        # A question that only the canary refuses counts as failed; a question that both models refuse, as refused.
        refused_by_canary_alone = first.outcome == REFUSED and second.outcome == ANSWERED
        outcome = FAILED if refused_by_canary_alone else first.outcome
        self._requests.labels(canary.version, outcome).inc()
        return second.response

    async def _request(self, backend: Backend, forwarded: "ForwardedRequest", until: float) -> Attempt:
        self._in_flight[backend.uri] += 1
        try:
            response = await self._http.request(
                forwarded.method,
                f"{backend.url}{forwarded.target}",
                headers=forwarded.headers,
                content=forwarded.body,
                timeout=max(until - time.monotonic(), 0.0),
            )
        except httpx2.TimeoutException:
            return Attempt(_error_response(504, "The model did not answer in time."), LATE)
        except (httpx2.TransportError, httpx2.UnsupportedProtocol):
            return Attempt(_error_response(502, "The model cannot be reached."), FAILED)
        finally:
            self._in_flight[backend.uri] -= 1
            if not self._in_flight[backend.uri] and backend.uri in self._idle_events:
                self._idle_events.pop(backend.uri).set()
        status = response.status_code
        outcome = STATUS_OUTCOMES.get(status) or (ANSWERED if status < 400 else REFUSED if status < 500 else FAILED)
        return Attempt(Response(response.content, status, _forwarded_headers(response.headers.items())), outcome)


class ForwardedRequest(NamedTuple):
    """Request as it is forwarded to a backend."""

    method: str
    target: str
    headers: dict[str, str]
    body: bytes


def routes_to_canary(request_id: str, percent: int) -> bool:
    """True if the canary answers this request. An id that goes to the canary at 5 % also does at 20 %."""
    number = int.from_bytes(hashlib.sha256(f"way {request_id}".encode()).digest()[:8])
    return number % BUCKETS < percent * BUCKETS // 100


async def _forwarded_request(request: Request) -> ForwardedRequest:
    headers = {**_forwarded_headers(request.headers.items()), "accept-encoding": "identity"}
    headers.setdefault(REQUEST_ID, uuid.uuid4().hex)
    target = request.url.path + (f"?{request.url.query}" if request.url.query else "")
    return ForwardedRequest(request.method, target, headers, await request.body())


def _forwarded_headers(headers: Iterable[tuple[str, str]]) -> dict[str, str]:
    return {name: value for name, value in headers if name.lower() not in DROPPED_HEADERS}


def _error_response(status: int, message: str) -> Response:
    return JSONResponse({"error": message}, status)
