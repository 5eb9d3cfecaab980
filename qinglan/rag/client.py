"""Client of any RAG service: the one in this repository, a company's (by its settings), or a run's gateway.

async with RagClient("http://127.0.0.1:8000") as rag:
    answer = await rag.retrieve(RagRequest(query="虾青素一天吃几次", tenant_id="fivedoctors"))
"""

import asyncio
from collections.abc import Mapping
from typing import Any, Self

import httpx2
import orjson
from pydantic import ValidationError

from qinglan.concurrency import AsyncClosing
from qinglan.config import explain_validation_error
from qinglan.errors import ConfigError, DataError, OutageError
from qinglan.http.http_client import BusyError, async_client, certificate_advice, pause_before_retry, retry_after
from qinglan.http.outages import Retries, outage_seconds
from qinglan.http.request_bundles import BundleClient, BundledResponse
from qinglan.rag.adapter import RagAdapter
from qinglan.rag.contract import RagAnswer, RagRequest, read_reranker_fallback
from qinglan.rag.service_shape import RagService

BUSY = {429, 502, 503, 504}
GATEWAY_CONCURRENCY = 512
"""Largest number of requests that a client has under way at a run's gateway. By default the gateway sends twenty of
them at once to the service."""

GATEWAY_ATTEMPTS = 3
"""Number of attempts to send a request to the gateway, since the connection may close meanwhile, or the gateway
restart."""

EXCERPT_BYTES = 200
PLAIN_SERVICE = RagService()
ADVICE = {
    401: " (it requires a token or a key: gateway.rag.headers)",
    403: " (it requires another token or key: gateway.rag.headers)",
    404: " (see gateway.rag.base_url and gateway.rag.path)",
}
"""Next step in an error message, by status."""

REDIRECTED = " (it redirects, often to a login: see gateway.rag.base_url and gateway.rag.headers)"
JSON_HEADER = {"content-type": "application/json"}
RERANKER_RETRY_SECONDS = 3.0
"""Seconds to pause after an answer without the reranker's scores, because the service tries its reranker again every
two seconds."""


class RagClient(AsyncClosing):
    """Retrieves passages with retries and a limit on concurrent requests, and validates every answer.

    For training and evaluation all scores must come from one reranker. So an answer with a fallback score instead of
    the reranker's score is an outage.
    """

    def __init__(
        self,
        base_url: str,
        timeout: float = 30.0,
        concurrency: int = 20,
        attempts: int = 4,
        back_within: float | None = None,
        service: RagService = PLAIN_SERVICE,
    ) -> None:
        self._base_url = base_url.rstrip("/")
        self._retries = Retries(f"RAG service {self._base_url}", pause_before_retry, attempts, back_within)
        self._adapter = RagAdapter(service, base_url)
        self._where = self._adapter.where
        self._slots = asyncio.Semaphore(concurrency)
        self._bundles: BundleClient | None = None
        self._http = async_client(base_url, timeout=timeout)

    @classmethod
    def of_gateway(cls, gateway_url: str) -> Self:
        """Create a client of a run's gateway, which itself limits and retries requests."""
        seconds = outage_seconds()
        client = cls(gateway_url, concurrency=GATEWAY_CONCURRENCY, attempts=GATEWAY_ATTEMPTS, back_within=seconds)
        client._bundles = BundleClient(gateway_url)
        return client

    async def aclose(self) -> None:
        if self._bundles:
            await self._bundles.aclose()
        await self._http.aclose()

    async def retrieve(self, request: RagRequest) -> RagAnswer:
        """Retrieve the passages for one query; an OutageError or DataError says why there are none."""
        return parse_rag_answer(request, await self.retrieve_raw(request), self._adapter)

    async def retrieve_raw(self, request: RagRequest) -> bytes:
        """Retrieve the passages for one query and return the answer's body as the service sent it."""
        sent = {name: value for name, value in request.model_dump().items() if value not in (None, "")}
        content = self._adapter.encode(orjson.dumps(sent))
        try:
            return (await self._send(content)).content
        except UnknownToServiceError as error:
            raise UnknownToServiceError(
                f"{error}. It was asked about tenant {request.tenant_id!r} and knowledge base {request.kb_name!r}: "
                "if it does not know these, name them as it does (--tenant or the sheet's tenants, "
                "retrieval.kb_name)."
            ) from error

    def read(self, content: bytes, tenant: str) -> dict[str, Any]:
        """Read an answer's body as the contract's `data`. Unlike `retrieve`, this accepts scores outside [0, 1]."""
        return self._adapter.read(content, tenant)

    async def _send(self, content: bytes) -> BundledResponse:
        async def send() -> BundledResponse:
            async with self._slots:
                reply = await self._exchange(content)
            if reply.status in BUSY:
                message = f"status {reply.status}: {_message(reply.content)}"
                raise BusyError(message, retry_after(reply.headers))
            if reason := read_reranker_fallback(reply.content):
                raise _RerankerFallbackError(f"its reranker gave no scores ({reason[:80]})", RERANKER_RETRY_SECONDS)
            return reply

        try:
            return self._accepted(await self._retries.run(send))
        except _RerankerFallbackError as error:
            raise OutageError(
                f"{self._where}: {error}; the local score in its place is another scale. "
                f"{self._next_step('reranker')}"
            ) from error
        except BusyError as error:
            raise OutageError(f"{self._where}: {error}. {self._next_step('service')}") from error
        except httpx2.TransportError as error:
            cause, advice = str(error) or type(error).__name__, certificate_advice(error)
            raise OutageError(f"{self._where}: no answer ({cause}). {self._next_step('service')}{advice}") from error

    async def _exchange(self, content: bytes) -> BundledResponse:
        """Send one request and return the answer. Requests to a run's gateway are sent in bundles."""
        if self._bundles:
            return await self._bundles.post(self._adapter.path, content, {})
        headers = JSON_HEADER | self._adapter.headers
        response = await self._http.post(self._adapter.path, content=content, headers=headers)
        return BundledResponse(response.status_code, response.headers, self._adapter.hide_secrets(response.content))

    def _accepted(self, reply: BundledResponse) -> BundledResponse:
        status, where = reply.status, self._where
        if status == 200:
            return reply
        if 300 <= status < 500:
            kind = {401: UnauthorizedError, 403: UnauthorizedError, 404: UnknownToServiceError}.get(status, DataError)
            advice = REDIRECTED if status < 400 else ADVICE.get(status, "")
            raise kind(f"{where}: refused with status {status}: {_message(reply.content)}{advice}")
        raise OutageError(f"{where}: status {status}: {_shown(reply.content)}. {self._next_step('service')}")

    def _next_step(self, part: str) -> str:
        return f"{self._retries.limit()}; see that the {part} is up, then run again."


class _RerankerFallbackError(BusyError):
    pass


class UnauthorizedError(DataError):
    """Status 401 or 403: a key is missing or wrong. Its exit code is that of a ConfigError, since no data is
    wrong."""

    exit_code = ConfigError.exit_code


class UnknownToServiceError(DataError):
    """Status 404: the service does not know the path, the tenant or the knowledge base."""


def parse_rag_answer(request: RagRequest, content: bytes, adapter: RagAdapter) -> RagAnswer:
    """Parse a body of status 200. Fields that the service does not send get defaults."""
    data, where = adapter.read(content, request.tenant_id), adapter.where
    # A service that ignores rewritten_query searches the question, and every rewrite would score the same.
    query = request.rewritten_query or request.query
    searched = str(data.get("rewritten_query") or query)
    if request.rewritten_query and searched.strip() != query.strip():
        raise DataError(
            f"{where}: searched {searched[:80]!r} instead of {query[:80]!r}. The service does not take "
            "rewritten_query yet: add that parameter to it (docs/rag-contract.md), or set "
            "rag.request.rewritten_query: query to send the rewrite as its question."
        )
    fields = {"scored_against": "query", "rewriter": "request", "snapshot": "", **data, "rewritten_query": searched}
    for passage in data["recall"]:
        refuse_improbable(passage, request.tenant_id, where)
    # reranker_score is then the score against the query, to which thresholds apply.
    if fields["scored_against"] == "query":
        fields["recall"] = [{**item, "query_score": item["reranker_score"]} for item in data["recall"]]
    try:
        return RagAnswer.model_validate({"data": fields})
    except ValidationError as error:
        raise DataError(
            f"{where}: the answer is not the contract (docs/rag-contract.md): {explain_validation_error(error)}"
        ) from error


def refuse_improbable(passage: Mapping[str, Any], tenant: str, where: str) -> None:
    """Raise a DataError if a score is no probability, because thresholds and rewards need one."""
    for name in ("reranker_score", "query_score"):
        score = passage.get(name)
        if score is not None and not 0 <= score <= 1:
            raise DataError(
                f"{where}: passage {passage['id']!r} has {name} {score}, outside [0, 1]. Thresholds and rewards need "
                f"a probability: give the profile a calibration, gateway.rag.calibration.{tenant}, which "
                "`qinglan check-rag` fits."
            )


def _message(content: bytes) -> str:
    """Read the error message from a body in the form of the contract, FastAPI or OpenAI; else return the body's
    beginning."""
    try:
        body = orjson.loads(content)
        message = body.get("msg") or body.get("detail") or body["error"]["message"]
    except (orjson.JSONDecodeError, AttributeError, KeyError, TypeError):
        return _shown(content)
    return str(message)


def _shown(content: bytes) -> str:
    return repr(content[:EXCERPT_BYTES].decode("utf-8", "replace"))
