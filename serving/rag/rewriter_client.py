"""Asks the deployed rewriter in its own protocol; a failure is never a made-up rewrite."""

from typing import Any, NamedTuple

import orjson

from qinglan.prompts import Question, student_messages
from qinglan.rag.contract import RagRequest
from qinglan.text import one_line
from serving.rag.config import RewriterConfig
from serving.rag.service_client import ServiceClient, ServiceError

LONGEST = 4000


class RewriteResult(NamedTuple):
    query: str
    version: str
    guarded: bool = False
    """The rewriter's own guard took its text back, and gave the plain query."""


class RewriterClient:
    """The rewriter that is deployed."""

    def __init__(self, config: RewriterConfig) -> None:
        self._config = config
        self._service = ServiceClient(config.url, config.deadline_seconds)

    async def aclose(self) -> None:
        await self._service.aclose()

    async def rewrite(self, request: RagRequest) -> RewriteResult:
        """The rewrite and the version that wrote it, or Unanswered with the reason."""
        return read_rewrite(self._config, await self._service.post(*request_body(self._config, request)))


def request_body(config: RewriterConfig, request: RagRequest) -> tuple[str, dict[str, Any]]:
    """Path and body of the question in the rewriter's own protocol."""
    if config.kind == "kserve":
        instance = {
            "query": request.query, "user_profile": request.user_profile,
            "history_summary": request.history_summary, "tenant_id": request.tenant_id,
        }  # fmt: skip
        return f"/v1/models/{config.model}:predict", {"instances": [instance]}
    question = Question(request.tenant_id, request.query, request.user_profile, request.history_summary)
    messages = student_messages(question, config.system_prompts.get(request.tenant_id, ""))
    return "/chat/completions", {
        "model": config.model, "messages": messages, "temperature": 0, "max_tokens": config.max_tokens,
    }  # fmt: skip


def read_rewrite(config: RewriterConfig, content: bytes) -> RewriteResult:
    """The rewrite in an answer of status 200; anything but one usable line of text is Unanswered."""
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
    if not query:
        raise ServiceError("empty")
    if len(query) > LONGEST:
        raise ServiceError("malformed")
    return RewriteResult(query, version, guarded)
