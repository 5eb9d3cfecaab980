"""Client of any RAG service that keeps the contract: this repository's, a company's own, or the gateway in front.

async with RagClient("http://127.0.0.1:8000") as rag:
    answer = await rag.retrieve(RagRequest(query="虾青素一天吃几次", tenant_id="fivedoctors"))
"""

import asyncio
import logging
from types import TracebackType
from typing import Any, Self, TypeVar

import httpx
import httpx2
import orjson
from pydantic import BaseModel, ValidationError

from qinglan.config import explain_validation_error
from qinglan.errors import DataError, OutageError
from qinglan.llm.request_bundles import BundleClient, BundledResponse
from qinglan.outages import Retries, outage_seconds
from qinglan.rag.contract import (
    KNOWLEDGE_BASES_PATH,
    RAG_PATH,
    KnowledgeBase,
    RagAnswer,
    RagRequest,
    read_reranker_fallback,
)

Answer = TypeVar("Answer", bound=BaseModel)

BUSY = {429, 502, 503, 504}
LONGEST_PAUSE = 30.0
GATEWAY_CONCURRENCY = 512
"""Most requests that wait in a run's gateway; the gateway sends the service twenty at once."""

GATEWAY_ATTEMPTS = 3
"""Attempts for connections that close while a request is sent, and for a gateway that restarts."""

EXCERPT_BYTES = 200
JSON_HEADER = {"content-type": "application/json"}
RERANKER_RETRY_SECONDS = 3.0
"""Pause after a failed reranker: the service tries it again every two seconds."""


class RagClient:
    """Retrieves with retries and a limit on concurrent requests; every answer is validated.

    For training and evaluation all scores must come from one reranker, so an answer whose reranker fell back to
    another score is an outage.
    """

    def __init__(
        self,
        base_url: str,
        timeout: float = 30.0,
        concurrency: int = 20,
        attempts: int = 4,
        back_within: float | None = None,
    ) -> None:
        self._base_url = base_url.rstrip("/")
        self._retries = Retries(f"RAG service {self._base_url}", _pause, attempts, back_within)
        self._slots = asyncio.Semaphore(concurrency)
        self._bundles: BundleClient | None = None
        # A service on loopback must not be called through a proxy of the environment.
        self._http = httpx.AsyncClient(
            base_url=base_url, timeout=timeout, trust_env=False, limits=httpx.Limits(max_connections=concurrency)
        )
        logging.getLogger("httpx").setLevel(logging.WARNING)  # under KFP's executor it would log a line a call

    @classmethod
    def of_gateway(cls, gateway_url: str) -> Self:
        """Create a client of a run's gateway, which itself limits and retries requests."""
        seconds = outage_seconds()
        client = cls(gateway_url, concurrency=GATEWAY_CONCURRENCY, attempts=GATEWAY_ATTEMPTS, back_within=seconds)
        client._bundles = BundleClient(gateway_url)
        return client

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        if self._bundles:
            await self._bundles.aclose()
        await self._http.aclose()

    async def retrieve(self, request: RagRequest) -> RagAnswer:
        """Retrieve the passages for one query; an OutageError or DataError says why there are none."""
        sent = {name: value for name, value in request.model_dump().items() if value not in (None, "")}
        response = await self._send("POST", RAG_PATH, sent)
        return parse_rag_answer(request, response.content, self._where(RAG_PATH))

    async def knowledge_bases(self) -> list[KnowledgeBase]:
        """List the knowledge bases that the service serves; empty where an older service cannot list them."""
        try:
            response = await self._send("GET", KNOWLEDGE_BASES_PATH)
        except _NotFound:
            return []
        where = self._where(KNOWLEDGE_BASES_PATH)
        listed = _json_object(response.content, where).get("knowledge_bases")
        if not isinstance(listed, list):
            raise OutageError(f"{where}: the answer has no list 'knowledge_bases': {_shown(response.content)}")
        return [_read(KnowledgeBase, item, where) for item in listed]

    async def _send(self, method: str, path: str, body: dict[str, Any] | None = None) -> BundledResponse:
        content = b"" if body is None else orjson.dumps(body)
        try:
            async for attempt in self._retries.attempts():
                with attempt:
                    async with self._slots:
                        reply = await self._exchange(method, path, content)
                    if reply.status in BUSY:
                        raise _Busy(reply)
                    if reason := read_reranker_fallback(reply.content):
                        raise _RerankerFallbackError(reason)
        except _Busy as busy:
            raise OutageError(f"{self._where(path)}: {busy}. {self._next_step('service')}") from busy
        except _RerankerFallbackError as fallen:
            raise OutageError(
                f"{self._where(path)}: {fallen}; the local score in its place is another scale. "
                f"{self._next_step('reranker')}"
            ) from fallen
        except (httpx.TransportError, httpx2.TransportError) as error:
            cause = str(error) or type(error).__name__
            raise OutageError(f"{self._where(path)}: no answer ({cause}). {self._next_step('service')}") from error
        self._retries.answered()
        return self._accepted(reply, path)

    async def _exchange(self, method: str, path: str, content: bytes) -> BundledResponse:
        """Send one request and read its answer, in a bundle where a gateway takes bundles."""
        if self._bundles and method == "POST":
            return await self._bundles.post(path, content, {})
        response = await self._http.request(method, path, content=content or None, headers=JSON_HEADER)
        return BundledResponse(response.status_code, response.headers, response.content)

    def _accepted(self, reply: BundledResponse, path: str) -> BundledResponse:
        status, where = reply.status, self._where(path)
        if status == 200:
            return reply
        if status == 404:
            raise _NotFound(f"{where}: {_message(reply.content)}")
        if 400 <= status < 500:
            raise DataError(f"{where}: refused with status {status}: {_message(reply.content)}")
        raise OutageError(f"{where}: status {status}: {_shown(reply.content)}")

    def _where(self, path: str) -> str:
        return f"RAG service {self._base_url}{path}"

    def _next_step(self, part: str) -> str:
        return f"{self._retries.limit()}; see that the {part} is up, then run again."


class _Busy(Exception):
    def __init__(self, reply: BundledResponse) -> None:
        super().__init__(f"status {reply.status}: {_message(reply.content)}")
        self.retry_after = reply.headers.get("retry-after", "")


class _RerankerFallbackError(Exception):
    def __init__(self, reason: str) -> None:
        super().__init__(f"its reranker gave no scores ({reason[:80]})")


class _NotFound(DataError):
    pass


def _pause(error: Exception) -> bool | float:
    """Decide if the request is sent again; a number is the wait in seconds that the service asks for."""
    if isinstance(error, _RerankerFallbackError):
        return RERANKER_RETRY_SECONDS
    if isinstance(error, _Busy):
        return min(float(error.retry_after), LONGEST_PAUSE) if error.retry_after.isdigit() else True
    return isinstance(error, httpx.TransportError | httpx2.TransportError)


def parse_rag_answer(request: RagRequest, content: bytes, where: str) -> RagAnswer:
    """Parse a body of status 200. Fields that an older service does not send get defaults."""
    body = _json_object(content, where)
    if body.get("code", 200) != 200:
        raise OutageError(f"{where}: code {body['code']!r} inside status 200: {body.get('msg', '')!r}")
    data = body.get("data")
    if not isinstance(data, dict) or not isinstance(data.get("recall"), list):
        raise OutageError(f"{where}: the answer has no list data.recall: {_shown(content)}")
    query = request.rewritten_query or request.query
    searched = data.get("rewritten_query") or query
    if request.rewritten_query and str(searched).strip() != query.strip():
        raise OutageError(
            f"{where}: searched {str(searched)[:80]!r} instead of {query[:80]!r}. "
            "The service does not take rewritten_query yet; add that parameter to it."
        )
    recall = [_recall(item, where) for item in data["recall"]]
    defaults = {"scored_against": "query", "rewriter": "request", "snapshot": ""}
    known = {
        "scored_against", "rewriter", "rewriter_version", "fallback_reason", "snapshot", "reranker",
        "reranker_digest", "reranker_fallback_reason",
    }  # fmt: skip
    extras = {name: data[name] for name in known if data.get(name) is not None}
    fields = {**defaults, **extras, "rewritten_query": searched, "recall": recall}
    if fields["scored_against"] == "query":
        fields["recall"] = [{**item, "query_score": item.get("reranker_score")} for item in recall]
    return _read(RagAnswer, {"data": fields}, where)


def _recall(item: Any, where: str) -> dict[str, Any]:
    if not isinstance(item, dict):
        raise OutageError(f"{where}: data.recall holds {str(item)[:80]!r} where a passage belongs.")
    score = item.get("reranker_score")
    if isinstance(score, int | float) and not 0 <= score <= 1:
        raise DataError(
            f"{where}: passage {item.get('id')!r} has reranker_score {score}, outside [0, 1]. "
            "Calibrate the service's reranker: thresholds and rewards need a probability."
        )
    fields = {name: item[name] for name in ("content", "reranker_score", "query_score") if name in item}
    return {**fields, "id": str(item.get("id", "")), "metadata": item.get("metadata") or {}}


def _read(model: type[Answer], values: Any, where: str) -> Answer:
    try:
        return model.model_validate(values)
    except ValidationError as error:
        raise OutageError(f"{where}: the answer is not the contract: {explain_validation_error(error)}") from error


def _json_object(content: bytes, where: str) -> dict[str, Any]:
    try:
        body = orjson.loads(content)
    except orjson.JSONDecodeError as error:
        raise OutageError(f"{where}: the answer is not JSON: {_shown(content)}") from error
    if not isinstance(body, dict):
        raise OutageError(f"{where}: the answer is no JSON object: {_shown(content)}")
    return body


def _message(content: bytes) -> str:
    """Error message of a body in the service's envelope or in OpenAI's; else the beginning of the body."""
    try:
        body = orjson.loads(content)
        message = body.get("msg") or body["error"]["message"]
    except (orjson.JSONDecodeError, AttributeError, KeyError, TypeError):
        return _shown(content)
    return str(message)


def _shown(content: bytes) -> str:
    return repr(content[:EXCERPT_BYTES].decode("utf-8", "replace"))
