"""Client of a reranker over HTTP, in vLLM's or TEI's protocol.

https://docs.vllm.ai/en/latest/serving/openai_compatible_server.html#re-rank-api
https://huggingface.github.io/text-embeddings-inference/

One request has up to `batch` passages; the deadline covers all requests for one text. After repeated failures the
service is not called for a while, so that users do not wait for its deadline every time.
"""

import asyncio
import math
import os
from collections.abc import Sequence
from typing import Any

import orjson

from qinglan.concurrency import gather_or_cancel
from qinglan.llm.limits import CircuitBreaker
from qinglan.rag.calibration import are_probabilities
from qinglan.rag.knowledge_base import searched_text
from serving.rag.config import RerankServiceConfig
from serving.rag.engine import Candidate
from serving.rag.service_client import ServiceClient, ServiceError, require_closed

API_KEY = "QINGLAN_RERANKER_API_KEY"
"""Environment variable with the service's key, if it requires one; both servers take it as a bearer token."""

FAILURES = 3
"""Consecutive failures after which the circuit opens and requests fail at once."""

PROBE_SECONDS = 2.0
"""Seconds between two requests that test if the service answers again. Clients that retry wait longer than this."""

OTHER_MODEL = "other_model"
UNCALIBRATED = "uncalibrated"
"""Reason of a ServiceError if the scores are no probabilities, such as the logits of a server without a sigmoid."""

TRUNCATE_TO_MODEL = -1
"""Value with which vLLM truncates a prompt that is too long for the model, like TEI's `truncate`."""


class RerankerClient:
    """Client of one reranker service, for all tenants of this process."""

    def __init__(self, config: RerankServiceConfig) -> None:
        self.config = config
        key = os.environ.get(API_KEY)
        headers = {"authorization": f"Bearer {key}"} if key else None
        self._service = ServiceClient(config.url, config.deadline_seconds, headers)
        self._slots = asyncio.Semaphore(config.concurrency)
        self._breaker = CircuitBreaker(FAILURES, PROBE_SECONDS)
        self._tei_batch: int | None = None
        """Highest number of passages in a request to TEI; None until its model is verified."""

    async def aclose(self) -> None:
        await self._service.aclose()

    async def rerank(self, text: str, candidates: Sequence[Candidate]) -> list[float]:
        """Score each candidate. Raises a ServiceError if the service fails, or if its scores are no probabilities."""
        if not candidates:
            return []
        scores = await self.scores(text, [searched_text(candidate.passage) for candidate in candidates])
        if not are_probabilities(scores):
            raise ServiceError(UNCALIBRATED)
        return scores

    async def scores(self, text: str, documents: Sequence[str]) -> list[float]:
        """Score the documents, in their order. Raises a ServiceError if the service fails or the circuit is open."""
        require_closed(self._breaker)
        try:
            async with asyncio.timeout(self.config.deadline_seconds):
                size = await self._batch_size()
                parts = [documents[at : at + size] for at in range(0, len(documents), size)]
                scores = await gather_or_cancel(*(self._ask_batch(text, part) for part in parts))
        except TimeoutError as error:
            self._failed("timeout")
            raise ServiceError("timeout") from error
        except ServiceError as failure:
            self._failed(str(failure))
            raise
        self._breaker.answered()
        return [score for part in scores for score in part]

    def _failed(self, reason: str) -> None:
        self._breaker.failed(reason)
        self._tei_batch = None  # a server that is restarted may serve another model

    async def _batch_size(self) -> int:
        if self.config.kind == "vllm":  # each request names the model, and vLLM refuses another
            return self.config.batch
        if self._tei_batch is None:
            # TEI serves one model and takes no name, but scores of another model must not be used.
            model, batch = read_info(await self._service.get("/info"))
            if model != self.config.model:
                raise ServiceError(OTHER_MODEL)
            self._tei_batch = min(self.config.batch, batch)
        return self._tei_batch

    async def _ask_batch(self, text: str, documents: Sequence[str]) -> list[float]:
        path, body = request_body(self.config, text, documents)
        async with self._slots:
            content = await self._service.post(path, body)
        return read_scores(self.config, content, len(documents))


def request_body(config: RerankServiceConfig, text: str, documents: Sequence[str]) -> tuple[str, dict[str, Any]]:
    """Build path and body of a request in the service's protocol. By default both services return sigmoid scores."""
    if config.kind == "vllm":
        body = {
            "model": config.model,
            "query": text,
            "documents": documents,
            "truncate_prompt_tokens": TRUNCATE_TO_MODEL,
        }
        return "/v1/rerank", body
    return "/rerank", {"query": text, "texts": documents, "truncate": True}


def read_scores(config: RerankServiceConfig, content: bytes, count: int) -> list[float]:
    """Read the scores and sort them by index, because both services list the best document first.

    Raises a ServiceError unless the answer has one finite number for each document.
    """
    try:
        body = orjson.loads(content)
        rows, name = (body["results"], "relevance_score") if config.kind == "vllm" else (body, "score")
        scores = {row["index"]: row[name] for row in rows}
        whole = len(rows) == count and scores.keys() == set(range(count)) and all(map(_is_number, scores.values()))
    except (orjson.JSONDecodeError, LookupError, TypeError) as error:
        raise ServiceError("malformed") from error
    if not whole:
        raise ServiceError("malformed")
    return [float(scores[number]) for number in range(count)]


def read_info(content: bytes) -> tuple[str, int]:
    """Read from TEI's /info the name of its model, and the highest number of texts in a request."""
    try:
        body = orjson.loads(content)
        model, batch = body["model_id"], body["max_client_batch_size"]
    except (orjson.JSONDecodeError, LookupError, TypeError) as error:
        raise ServiceError("malformed") from error
    if not isinstance(model, str) or not isinstance(batch, int) or batch < 1:
        raise ServiceError("malformed")
    return model, batch


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
