"""Retrievals of a run: limited concurrency, one call for equal requests, and a cache by knowledge base and snapshot.

This is the hot path of a run. If the RAG service follows the contract, bodies pass unchanged, and only the fields for
the cache are parsed. Bodies of another service are translated (qinglan/rag/adapter.py), so that every step reads the
contract's format.
"""

import asyncio
import time
from hashlib import sha256
from typing import Any, NamedTuple

import httpcore2
import httpx2
import orjson
import stamina

from qinglan.concurrency import gather_or_cancel
from qinglan.errors import DataError, OutageError
from qinglan.http.http_client import (
    MAX_ANSWER_BYTES,
    AnswerLimit,
    Deadline,
    certificate_advice,
    retry_after,
    trusted_certificates,
)
from qinglan.llm.config import RagUpstream
from qinglan.llm.host_allowlist import check_host
from qinglan.rag.adapter import RagAdapter
from qinglan.rag.contract import KNOWLEDGE_BASES_PATH, read_reranker_fallback
from qinglan.rag.sampled_snapshot import sample_requests, sampled_snapshot
from serving.gateway.cache import RetrievalCache
from serving.gateway.metrics import Metrics

LISTING_TTL_SECONDS = 30.0
"""Seconds for which a list of knowledge bases is valid."""

SAMPLE_TTL_SECONDS = 600.0
"""Seconds for which a digest of the service's answers to `rag.snapshot_queries` is valid as its snapshot."""

OUTAGE_TTL_SECONDS = 5.0
"""Seconds for which an unreachable service is not called again, so that waiting requests fail at once."""

RUN_CACHE_SIZE = 20_000
LONGEST_PAUSE = 30.0
RETRYABLE_STATUSES = {429, 500, 502, 503, 504}
TRANSPORT_ERRORS = (
    httpcore2.TimeoutException,
    httpcore2.NetworkError,
    httpcore2.ProtocolError,
    httpx2.TransportError,
)
JSON_HEADERS = [(b"content-type", b"application/json"), (b"accept", b"application/json")]


class Reply(NamedTuple):
    status: int
    body: bytes


class CacheableRequest(NamedTuple):
    """Fields of a request from which the key of its cached answer is made."""

    tenant: str
    kb: str
    canonical: bytes


NO_LISTING = Reply(404, orjson.dumps({"code": 404, "msg": "The RAG service lists no knowledge bases.", "data": None}))


class _ServiceBusy(Exception):
    def __init__(self, reply: Reply, wait: float | None) -> None:
        super().__init__(f"status {reply.status}: {reply.body[:200].decode('utf-8', 'replace')}")
        self.wait = wait


class RetrievalClient:
    """Client of a run's RAG service; all retrievals of the run use it."""

    def __init__(self, upstream: RagUpstream, cache: RetrievalCache, metrics: Metrics) -> None:
        check_host(upstream.base_url, "rag.base_url")
        self._upstream, self._cache, self._metrics = upstream, cache, metrics
        self._base_url = upstream.base_url.rstrip("/")
        self._adapter = RagAdapter(upstream, upstream.base_url)
        extra = self._adapter.headers.items()
        self._headers = [*JSON_HEADERS, *((name.encode(), value.encode()) for name, value in extra)]
        self._timeout = {"timeout": dict.fromkeys(("connect", "read", "write"), upstream.timeout_seconds)}
        trusted = trusted_certificates()
        self._lines = [httpcore2.AsyncConnectionPool(trusted, max_connections=1) for _ in range(upstream.concurrency)]
        # Last in, first out: the connection that was used last is most likely still open.
        self._free: asyncio.LifoQueue[httpcore2.AsyncConnectionPool] = asyncio.LifoQueue()
        for line in self._lines:
            self._free.put_nowait(line)
        self._listing = asyncio.Lock()
        self._listed: dict[tuple[str, str], bytes] | None = {}
        self._listed_until = 0.0
        self._away: OutageError | None = None
        self._samples: dict[tuple[str, str], tuple[bytes, float]] = {}
        """Description (with the digest of sampled answers) and end of validity, by tenant and knowledge base."""

        self._flights: dict[bytes, asyncio.Task[Reply]] = {}
        self._this_run: dict[bytes, bytes] = {}

    async def aclose(self) -> None:
        for line in self._lines:
            await line.aclose()

    async def retrieve(self, body: bytes) -> Reply:
        """Answer from the cache, from an equal request under way, or from the service."""
        request = read_cacheable_request(body)
        if request is None:
            return await self._ask(body, "")
        base = await self._base(request)
        key = sha256(base + b"\n" + request.canonical).digest()
        cached = self._cache.get(key) if base else self._this_run.get(key)
        if cached is not None:
            self._metrics.retrieval("hit")
            return Reply(200, cached)
        flight = self._flights.get(key)
        self._metrics.retrieval("hit" if flight else "miss")
        return await asyncio.shield(flight or self._start(key, base, body))

    async def knowledge_bases(self) -> Reply:
        """Fetch the service's list of knowledge bases; status 404 if the service has no such list."""
        if not self._adapter.lists_knowledge_bases:
            return NO_LISTING
        reply = await self._send("GET", KNOWLEDGE_BASES_PATH)
        return NO_LISTING if reply.status == 200 and read_knowledge_bases(reply) is None else reply

    def _start(self, key: bytes, base: bytes, body: bytes) -> "asyncio.Task[Reply]":
        flight = asyncio.create_task(self._fetch(key, base, body))
        self._flights[key] = flight

        def flight_done(done: "asyncio.Task[Reply]") -> None:
            del self._flights[key]
            if not done.cancelled():
                done.exception()  # mark it as read: the waiting requests get it from the task, unless all hung up

        flight.add_done_callback(flight_done)
        return flight

    async def _fetch(self, key: bytes, base: bytes, body: bytes) -> Reply:
        reply = await self._ask(body, orjson.loads(base)["snapshot"] if base else "")
        if read_reranker_fallback(reply.body):
            return reply  # scored by another reranker than the cache key names; the client sends it again
        if not is_cacheable(reply, base):
            if reply.status == 200:
                self._listed_until = 0.0  # perhaps the knowledge base has changed
        elif base:
            await self._cache.put(key, reply.body)
        else:  # for this run only: without a snapshot, the answer may differ tomorrow
            if len(self._this_run) >= RUN_CACHE_SIZE:
                del self._this_run[next(iter(self._this_run))]
            self._this_run[key] = reply.body
        return reply

    async def _ask(self, body: bytes, snapshot: str) -> Reply:
        """Translate a request to the service's format, send it, and translate a successful answer to the contract."""
        reply = await self._send("POST", self._adapter.path, self._adapter.encode(body))
        return Reply(200, self._adapter.decode(reply.body, body, snapshot)) if reply.status == 200 else reply

    async def _base(self, request: CacheableRequest) -> bytes:
        """Return the description of the knowledge base, which contains its snapshot, as bytes for the cache key.

        The service lists it; otherwise it is made of sampled answers. It is empty if the service has no list and
        `rag.snapshot_queries` is empty.
        """
        if time.monotonic() >= self._listed_until:
            async with self._listing:
                if time.monotonic() >= self._listed_until:
                    await self._list()
        if self._away:
            raise self._away
        listed = (self._listed or {}).get((request.tenant, request.kb), b"")
        return listed or await self._sampled_base(request)

    async def _sampled_base(self, request: CacheableRequest) -> bytes:
        """Return a description with the digest of sampled answers as its snapshot; b"" without `snapshot_queries`."""
        if not self._upstream.snapshot_queries:
            return b""
        known = (request.tenant, request.kb)
        async with self._listing:
            base, until = self._samples.get(known, (b"", 0.0))
            if time.monotonic() >= until:
                snapshot = await self._sample(request)
                base = orjson.dumps({"tenant_id": request.tenant, "kb_name": request.kb, "snapshot": snapshot})
                self._samples[known] = base, time.monotonic() + SAMPLE_TTL_SECONDS
        return base

    async def _sample(self, request: CacheableRequest) -> str:
        queries = self._upstream.snapshot_queries
        bodies = [orjson.dumps(sent) for sent in sample_requests(queries, request.tenant, request.kb)]
        replies = await gather_or_cancel(*(self._ask(body, "") for body in bodies))
        for reply in replies:
            if reply.status != 200:
                raise DataError(
                    f"{self._adapter.where}: status {reply.status} to a question of rag.snapshot_queries: "
                    f"{reply.body[:200].decode('utf-8', 'replace')!r}."
                )
        return sampled_snapshot(queries, [orjson.loads(reply.body)["data"] for reply in replies])

    async def _list(self) -> None:
        """Fetch the list of knowledge bases. For some seconds, later requests get this list or the same error."""
        try:
            self._listed, self._away = read_knowledge_bases(await self.knowledge_bases()), None
            self._listed_until = time.monotonic() + LISTING_TTL_SECONDS
        except OutageError as error:
            self._away = error
            self._listed_until = time.monotonic() + OUTAGE_TTL_SECONDS

    async def _send(self, method: str, path: str, body: bytes = b"") -> Reply:
        """Send a request, and retry temporary failures. Raises an OutageError after the last attempt."""
        try:
            async for attempt in stamina.retry_context(
                on=_retry_wait, attempts=self._upstream.attempts, timeout=None, wait_max=LONGEST_PAUSE
            ):
                with attempt:
                    return await self._send_once(method, path, body)
        except (_ServiceBusy, *TRANSPORT_ERRORS) as error:
            self._metrics.retrieval("failed")
            raise OutageError(
                f"RAG service {self._base_url}{path}: {error or type(error).__name__} "
                f"after {self._upstream.attempts} tries. See that it is up, then run again."
                + certificate_advice(error)
            ) from error
        raise AssertionError("a retry loop ends with an answer or an error")

    async def _send_once(self, method: str, path: str, body: bytes) -> Reply:
        # Each connection has its own pool, because httpcore's pool scans all of its connections for each request.
        line = await self._free.get()
        chunks, limit, url = list[bytes](), AnswerLimit(MAX_ANSWER_BYTES), self._base_url + path
        try:
            async with (
                Deadline(self._upstream.timeout_seconds).hold(),
                line.stream(method, url, headers=self._headers, content=body, extensions=self._timeout) as response,
            ):
                async for chunk in response.aiter_stream():
                    limit.count(chunk)
                    chunks.append(chunk)
        finally:
            self._free.put_nowait(line)
        reply = Reply(response.status, self._adapter.hide_secrets(b"".join(chunks)))
        if reply.status in RETRYABLE_STATUSES:
            named = {name.decode().lower(): value.decode() for name, value in response.headers}
            raise _ServiceBusy(reply, retry_after(named))
        return reply


def read_cacheable_request(body: bytes) -> CacheableRequest | None:
    """Parse a request; None if it cannot be cached.

    A request cannot be cached if it is invalid or has no rewritten query (the deployed rewriter will write one).
    """
    try:
        request = orjson.loads(body)
        if not request.get("rewritten_query"):
            return None
        tenant, kb = str(request["tenant_id"]), str(request.get("kb_name", "default"))
    except (orjson.JSONDecodeError, AttributeError, KeyError):
        return None
    return CacheableRequest(tenant, kb, orjson.dumps(request, option=orjson.OPT_SORT_KEYS))


def read_knowledge_bases(reply: Reply) -> dict[tuple[str, str], bytes] | None:
    """Read the service's description of each knowledge base, by tenant and name; None if the reply has no list."""
    if reply.status != 200:
        return None
    try:
        listed = orjson.loads(reply.body)["knowledge_bases"]
        return {
            (item["tenant_id"], item["kb_name"]): orjson.dumps(item, option=orjson.OPT_SORT_KEYS)
            for item in listed
            if item["snapshot"]
        }
    except (orjson.JSONDecodeError, KeyError, TypeError):
        return None


def is_cacheable(reply: Reply, base: bytes) -> bool:
    """True if an answer may be cached: it is a success, and comes from the snapshot in the cache key."""
    if reply.status != 200:
        return False
    try:
        answer = orjson.loads(reply.body)
        data: dict[str, Any] = answer["data"]
        whole = answer.get("code", 200) == 200 and isinstance(data["recall"], list)
        return whole and (not base or data["snapshot"] == orjson.loads(base)["snapshot"])
    except (orjson.JSONDecodeError, KeyError, TypeError):
        return False


def _retry_wait(error: Exception) -> bool | float:
    """Return True if a request is retried after this error, or the wait in seconds that the service asks for."""
    if isinstance(error, _ServiceBusy):
        return True if error.wait is None else min(error.wait, LONGEST_PAUSE)
    return isinstance(error, TRANSPORT_ERRORS)
