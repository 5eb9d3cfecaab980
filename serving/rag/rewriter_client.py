"""Client of the deployed rewriter, in the rewriter's own protocol. A failure raises a ServiceError.

The wait for an answer follows the rewriter's recent times (`patience.py`). Rewrites of the current model version are
cached (`rewrite_cache.py`). After repeated timeouts the rewriter is not called for a while, so that users do not wait
for it every time.
"""

import time
from typing import Any

import orjson

from qinglan.llm.limits import CircuitBreaker
from qinglan.prompts import Question, student_messages
from qinglan.rag.contract import RagRequest
from qinglan.text.text import is_blank, one_line
from serving.rag.config import RewriterConfig
from serving.rag.patience import Patience
from serving.rag.rewrite_cache import RewriteCache, RewriteResult
from serving.rag.service_client import ServiceClient, ServiceError, require_closed

LONGEST = 4000
FAILURES = 5
"""Consecutive timeouts after which the circuit opens and questions are searched without a rewrite."""

PROBE_SECONDS = 2.0
"""Seconds between two questions that test if the rewriter answers again."""

NO_ANSWER = ("timeout", "unreachable")
"""Failures that the circuit breaker counts. After other failures no user waits, because the rewriter has answered."""


class RewriterClient:
    """Client of the deployed rewriter."""

    def __init__(self, config: RewriterConfig) -> None:
        self._config = config
        self._service = ServiceClient(config.url, config.deadline_seconds)
        self._breaker = CircuitBreaker(FAILURES, PROBE_SECONDS)
        self._patience = Patience(config.deadline_seconds)
        self.cache = RewriteCache(config.cached_rewrites)

    @property
    def as_asked(self) -> float:
        """Lowest score of the first passage for the original question at which the question is not rewritten."""
        return self._config.as_asked

    @property
    def circuit_open(self) -> bool:
        return bool(self._breaker.outage)

    @property
    def patience_seconds(self) -> float:
        return self._patience.seconds

    async def aclose(self) -> None:
        await self._service.aclose()

    async def rewrite(self, request: RagRequest) -> RewriteResult:
        """Return the rewrite of a question, from the cache or the rewriter. Raises a ServiceError with the reason."""
        if rewrite := self.cache.current(request):
            return rewrite
        try:
            rewrite = await self._ask(request)
        except ServiceError:
            if rewrite := self.cache.known(request):
                return rewrite
            raise
        if rewrite.version != self._config.model:  # a model's name stays the same when the weights change
            self.cache.add(request, rewrite)
        return rewrite

    async def _ask(self, request: RagRequest) -> RewriteResult:
        require_closed(self._breaker)
        started, patience = time.monotonic(), self._patience.seconds
        try:
            content = await self._service.post(*request_body(self._config, request), patience)
        except ServiceError as failure:
            if str(failure) == "timeout":
                self._patience.observe(patience)
            if str(failure) in NO_ANSWER:
                self._breaker.failed(str(failure))
            else:
                self._breaker.answered()
            raise
        self._patience.observe(time.monotonic() - started)
        self._breaker.answered()
        return read_rewrite(self._config, content)


def request_body(config: RewriterConfig, request: RagRequest) -> tuple[str, dict[str, Any]]:
    """Build path and body of a question in the rewriter's protocol."""
    if config.kind == "kserve":
        instance = {
            "query": request.query,
            "user_profile": request.user_profile,
            "history_summary": request.history_summary,
            "tenant_id": request.tenant_id,
        }
        return f"/v1/models/{config.model}:predict", {"instances": [instance]}
    question = Question(request.tenant_id, request.query, request.user_profile, request.history_summary)
    messages = student_messages(question, config.system_prompts.get(request.tenant_id, ""))
    return "/chat/completions", {
        "model": config.model,
        "messages": messages,
        "temperature": 0,
        "max_tokens": config.max_tokens,
    }


def read_rewrite(config: RewriterConfig, content: bytes) -> RewriteResult:
    """Read the rewrite from an answer of status 200. Raises a ServiceError if it is malformed, empty or too long."""
    try:
        body = orjson.loads(content)
        if config.kind == "kserve":
            prediction = body["predictions"][0]
            text, version = prediction["rewritten_query"], prediction["model_version"]
        else:
            prediction = body
            text, version = body["choices"][0]["message"]["content"], body["model"]
        guarded = "fallback" in prediction
    except (orjson.JSONDecodeError, LookupError, TypeError) as error:
        raise ServiceError("malformed") from error
    if not isinstance(text, str) or not isinstance(version, str):
        raise ServiceError("malformed")
    query = one_line(text)
    if is_blank(query):
        raise ServiceError("empty")
    if len(query) > LONGEST:
        raise ServiceError("malformed")
    return RewriteResult(query, version, guarded)
