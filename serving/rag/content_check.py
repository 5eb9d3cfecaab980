"""Content check: find outgoing answers without the careful style that their question requires."""

import time
from collections.abc import Collection
from typing import Annotated

from fastapi import APIRouter
from pydantic import Field
from starlette.exceptions import HTTPException

from qinglan.config import Config, Name
from qinglan.rag.contract import QueryText
from qinglan.style.labels import format_training_text
from qinglan.style.service_responses import read_style_responses
from serving.rag.config import ContentConfig
from serving.rag.metrics import Metrics
from serving.rag.service_client import ServiceClient, ServiceError

CONTENT_PATH = "/api/chat/content_check"
STYLE_PATH = "/v1/models/style:predict"


class ContentRequest(Config):
    tenant_id: Name
    query: QueryText
    answer: Annotated[str, Field(min_length=1, max_length=20000, pattern=r"\S")]
    """Text that is about to be sent to the user."""


class ContentData(Config):
    """Verdict on an answer. If the check failed, `reason` is set, and the scores and `flagged` are null."""

    checked: bool = False
    flagged: bool | None = None
    called_for: float | None = None
    """Probability of `ContentConfig.label` for the question with an empty answer; high if the style is required."""

    harmless: float | None = None
    """Probability of `ContentConfig.label` for the question with this answer."""

    predicted_label: str = ""
    """Most probable label of the answer."""

    model_version: str = ""
    reason: str = ""
    """Reason of a failed check: timeout, unreachable, refused or malformed; "" if the check succeeded."""

    @property
    def outcome(self) -> str:
        return self.reason or ("flagged" if self.flagged else "passed")


class ContentAnswer(Config):
    code: int = 200
    msg: str = "success"
    data: ContentData


class ContentChecker:
    """Client of the style service that checks answers within a deadline."""

    def __init__(self, config: ContentConfig) -> None:
        self._config = config
        self._service = ServiceClient(config.url, config.deadline_seconds)

    async def aclose(self) -> None:
        await self._service.aclose()

    async def check(self, query: str, answer: str) -> ContentData:
        """Check if an answer lacks the style that its question requires.

        The question with the answer and the question by itself are classified in one request, because a second
        request would double the wait.
        """
        texts = format_training_text(query, answer), format_training_text(query, "")
        try:
            content = await self._service.post(STYLE_PATH, {"instances": [{"text": text} for text in texts]})
            return read_verdict(content, self._config)
        except ServiceError as failure:
            return ContentData(reason=str(failure))


def read_verdict(content: bytes, config: ContentConfig) -> ContentData:
    """Read the two predictions of the style service: for the question with its answer, and with an empty answer.

    Raises a ServiceError if a prediction lacks the label.
    """
    try:
        answered, alone = read_style_responses(content, 2)
        harmless, called_for = answered.probabilities[config.label], alone.probabilities[config.label]
    except (ValueError, KeyError) as error:
        raise ServiceError("malformed") from error
    return ContentData(
        checked=True,
        flagged=is_flagged(called_for, harmless, config),
        called_for=called_for,
        harmless=harmless,
        predicted_label=answered.predicted_label,
        model_version=answered.model_version,
    )


def is_flagged(called_for: float, harmless: float, config: ContentConfig) -> bool:
    """Return True if the question requires the careful style and the answer lacks it.

    A low probability of 无伤害 for the answer is not enough. Labels exclude each other, so a good sales answer has
    a low probability, too.
    """
    return called_for >= config.called_for_threshold and harmless < config.harmless_threshold


def content_routes(checker: ContentChecker | None, tenants: Collection[str], metrics: Metrics) -> APIRouter:
    """Build the route POST /api/chat/content_check; requests for other tenants get status 404."""
    router = APIRouter()

    @router.post(CONTENT_PATH)
    async def content_check(request: ContentRequest) -> ContentAnswer:
        if checker is None:
            raise HTTPException(501, "content check: no style service is configured. Start with --style URL.")
        if request.tenant_id not in tenants:
            raise HTTPException(404, f"tenant_id: nothing is served under {request.tenant_id!r}")
        started = time.perf_counter()
        data = await checker.check(request.query, request.answer)
        metrics.content_checked(request.tenant_id, data.outcome, time.perf_counter() - started)
        return ContentAnswer(data=data)

    return router
