"""Asks the deployed rewriter, within a deadline; a failure is a short word, and never a made-up rewrite."""

import asyncio
from typing import Any, NamedTuple

import httpx
import orjson

from qinglan.prompts import student_messages
from qinglan.rag.contract import RagRequest
from qinglan.text import one_line
from serving.rag.config import RewriterConfig

LONGEST = 4000


class Rewritten(NamedTuple):
    query: str
    version: str


class RewriterFailed(Exception):
    """The reason is one of a few words: it becomes a metric's label."""


class Asked(NamedTuple):
    """A request as the prompts see it."""

    tenant_id: str
    question: str
    user_profile: str
    history_summary: str


class Rewriter:
    """One connection pool to the rewriter that is deployed."""

    def __init__(self, config: RewriterConfig) -> None:
        self._config = config
        self._http = httpx.AsyncClient(timeout=config.deadline_seconds, trust_env=False)

    async def aclose(self) -> None:
        await self._http.aclose()

    async def rewrite(self, request: RagRequest) -> Rewritten:
        """The rewrite and the version that wrote it, or RewriterFailed with the reason."""
        path, body = request_body(self._config, request)
        try:
            async with asyncio.timeout(self._config.deadline_seconds):
                response = await self._http.post(
                    self._config.url.rstrip("/") + path, content=orjson.dumps(body),
                    headers={"content-type": "application/json"},
                )  # fmt: skip
        except (TimeoutError, httpx.TimeoutException):
            raise RewriterFailed("timeout") from None
        except httpx.HTTPError:
            raise RewriterFailed("unreachable") from None
        if response.status_code != 200:
            raise RewriterFailed("refused")
        return read_rewrite(self._config, response.content)


def request_body(config: RewriterConfig, request: RagRequest) -> tuple[str, dict[str, Any]]:
    """Path and body of the question in the rewriter's own protocol."""
    if config.kind == "kserve":
        instance = {
            "query": request.query, "user_profile": request.user_profile,
            "history_summary": request.history_summary, "tenant_id": request.tenant_id,
        }  # fmt: skip
        return f"/v1/models/{config.model}:predict", {"instances": [instance]}
    asked = Asked(request.tenant_id, request.query, request.user_profile, request.history_summary)
    messages = student_messages(asked)
    return "/chat/completions", {
        "model": config.model, "messages": messages, "temperature": 0, "max_tokens": config.max_tokens,
    }  # fmt: skip


def read_rewrite(config: RewriterConfig, content: bytes) -> Rewritten:
    """The rewrite in an answer of status 200; anything but one usable line of text is RewriterFailed."""
    try:
        body = orjson.loads(content)
        if config.kind == "kserve":
            prediction = body["predictions"][0]
            text, version = prediction["rewritten_query"], prediction["model_version"]
        else:
            text, version = body["choices"][0]["message"]["content"], body["model"]
    except (orjson.JSONDecodeError, LookupError, TypeError):
        raise RewriterFailed("malformed") from None
    if not isinstance(text, str) or not isinstance(version, str):
        raise RewriterFailed("malformed")
    query = one_line(text)
    if not query:
        raise RewriterFailed("empty")
    if len(query) > LONGEST:
        raise RewriterFailed("malformed")
    return Rewritten(query, version)
