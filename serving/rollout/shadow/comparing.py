"""Which of two rewrites is better, by one text that neither model wrote.

The need: the question with its history's end, the same for both. The RAG service searches each rewrite as production
would, and its reranker scores what was found against the need. Or the judge, asked in both orders; one that chooses
by position has not decided.
"""

from typing import Protocol

from pydantic import ValidationError

from qinglan.errors import QinglanError
from qinglan.ordered import together
from qinglan.rag.client import RagClient
from qinglan.rag.contract import RagRequest
from qinglan.reward.seed_v1 import quality
from qinglan.text import one_line
from serving.rollout.shadow.config import ShadowConfig
from serving.rollout.shadow.metrics import Failure, Outcome
from serving.rollout.shadow.questions import Asked

LONGEST = 4000
"""Characters of a need; a RAG service takes no more."""

SAME = 0.01
"""Differences below it are a tie: the reranker's scores are no finer."""

STEP = "shadow"


class Comparer(Protocol):
    async def compare(self, asked: Asked, canary: str, stable: str) -> Outcome:
        """A Failure where nobody could say."""
        ...

    async def aclose(self) -> None: ...


def need_of(asked: Asked) -> str:
    """The question, and as much of its history's end as fits; neither model has a part in it."""
    question, history = one_line(asked.question), one_line(asked.history_summary)
    room = LONGEST - len(question) - 1
    return f"{question} {history[-room:]}".strip() if room > 0 else question[:LONGEST]


def settled(canary: float, stable: float) -> Outcome:
    if abs(canary - stable) < SAME:
        return "tied"
    return "won" if canary > stable else "lost"


class Searched:
    """Both searched, what they find scored against the need."""

    def __init__(self, config: ShadowConfig) -> None:
        self._config = config
        self._rag = RagClient(config.rag, timeout=config.deadline_seconds, attempts=1)

    async def aclose(self) -> None:
        await self._rag.aclose()

    async def compare(self, asked: Asked, canary: str, stable: str) -> Outcome:
        need = need_of(asked)
        try:
            return settled(*await together(*(self._quality(asked, need, query) for query in (canary, stable))))
        except (QinglanError, ValidationError) as error:  # their words may repeat the question's
            raise Failure("rag", f"{self._config.rag}: {type(error).__name__}") from error

    async def _quality(self, asked: Asked, need: str, query: str) -> float:
        config = self._config
        wanted = {
            "query": asked.question, "rewritten_query": query, "need": need, "tenant_id": asked.tenant,
            "kb_name": config.kb_name, "top_k": config.top_k, "score_threshold": config.score_threshold,
        }  # fmt: skip
        data = (await self._rag.retrieve(RagRequest.model_validate(wanted))).data
        if data.scored_against != "need":
            raise Failure("scored_by_query", "the RAG service does not know `need`: its scores can be gamed")
        return quality([one.reranker_score for one in data.recall])


class Judged:
    """The judge's preference, through a gateway that keeps its budget."""

    def __init__(self, url: str) -> None:
        from qinglan.llm.client import Gateway

        self._gateway = Gateway(url, STEP, back_within=5.0)

    async def aclose(self) -> None:
        await self._gateway.__aexit__(None, None, None)

    async def compare(self, asked: Asked, canary: str, stable: str) -> Outcome:
        from qinglan.reward.episode import Prompt
        from qinglan.reward.judge import preferred

        need = need_of(asked)
        prompt = Prompt(
            id=asked.request_id, tenant_id=asked.tenant, question=asked.question, need=need, teacher_rewrite=need,
            user_profile=asked.user_profile, history_summary=asked.history_summary,
        )  # fmt: skip
        try:
            said = await preferred(self._gateway, prompt, canary, stable)
        except QinglanError as error:
            raise Failure("judge", type(error).__name__) from error
        words: dict[str, Outcome] = {"first": "won", "second": "lost", "tie": "tied"}
        return words[said.better]


def comparer(config: ShadowConfig) -> Comparer:
    return Judged(config.judge) if config.judge else Searched(config)
