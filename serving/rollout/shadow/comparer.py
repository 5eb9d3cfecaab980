"""Decide which of two rewrites is better, by a text that neither model wrote.

The text is the need: the question with the end of its history, the same for both rewrites. The RAG service searches
each rewrite like production, and its reranker scores the hits against the need. If a judge is configured, it compares
the two rewrites instead, in both orders; if its answer depends on the order, the pair is tied.
"""

from typing import Protocol

from pydantic import ValidationError

from qinglan.concurrency import gather_or_cancel
from qinglan.errors import QinglanError
from qinglan.rag.client import RagClient
from qinglan.reward.terms.seed_v1 import retrieval_quality
from qinglan.text.text import one_line
from serving.rollout.shadow.config import ShadowConfig
from serving.rollout.shadow.metrics import PairFailure, PairOutcome
from serving.rollout.shadow.payload_log import LoggedQuestion

MAX_NEED_CHARS = 4000
"""Longest need in characters that the RAG service accepts."""

TIE_THRESHOLD = 0.01
"""Difference of the scores below which a pair is tied, because the reranker's scores are not more precise."""

STEP = "shadow"


class Comparer(Protocol):
    async def compare(self, question: LoggedQuestion, canary: str, stable: str) -> PairOutcome:
        """Compare both rewrites, and return the canary's outcome. Raises a PairFailure if that is not possible."""
        ...

    async def aclose(self) -> None: ...


def build_need(question: LoggedQuestion) -> str:
    """Build the need: the question with the end of its history, up to MAX_NEED_CHARS."""
    text, history = one_line(question.question), one_line(question.history_summary)
    room = MAX_NEED_CHARS - len(text) - 1
    return f"{text} {history[-room:]}".strip() if room > 0 else text[:MAX_NEED_CHARS]


def pair_outcome(canary: float, stable: float) -> PairOutcome:
    if abs(canary - stable) < TIE_THRESHOLD:
        return "tied"
    return "won" if canary > stable else "lost"


class RagComparer:
    """Comparer that searches both rewrites and scores their hits against the need."""

    def __init__(self, config: ShadowConfig) -> None:
        self._config = config
        self._rag = RagClient(config.rag, timeout=config.deadline_seconds, attempts=1)

    async def aclose(self) -> None:
        await self._rag.aclose()

    async def compare(self, question: LoggedQuestion, canary: str, stable: str) -> PairOutcome:
        need = build_need(question)
        try:
            return pair_outcome(
                *await gather_or_cancel(*(self._quality(question, need, query) for query in (canary, stable)))
            )
        except (QinglanError, ValidationError) as error:  # only the type is logged: a message may quote the question
            raise PairFailure("rag", f"{self._config.rag}: {type(error).__name__}") from error

    async def _quality(self, question: LoggedQuestion, need: str, query: str) -> float:
        config = self._config.retrieval
        data = (await self._rag.retrieve(config.request(question.question, query, need, question.tenant))).data
        if data.scored_against != "need":
            raise PairFailure("scored_by_query", "the RAG service does not know `need`: its scores can be gamed")
        return retrieval_quality([passage.reranker_score for passage in config.shown(data)])


class JudgeComparer:
    """Comparer that asks the judge for its preference, through a gateway that limits the cost."""

    def __init__(self, url: str) -> None:
        from qinglan.llm.client import GatewayClient

        self._gateway = GatewayClient(url, STEP, back_within=5.0)

    async def aclose(self) -> None:
        await self._gateway.aclose()

    async def compare(self, question: LoggedQuestion, canary: str, stable: str) -> PairOutcome:
        from qinglan.reward.episode import Prompt
        from qinglan.reward.judge import compare_rewrites

        need = build_need(question)
        prompt = Prompt(
            id=question.request_id,
            tenant_id=question.tenant,
            question=question.question,
            need=need,
            teacher_rewrite=need,
            user_profile=question.user_profile,
            history_summary=question.history_summary,
        )
        try:
            comparison = await compare_rewrites(self._gateway, prompt, canary, stable)
        except QinglanError as error:
            raise PairFailure("judge", type(error).__name__) from error
        words: dict[str, PairOutcome] = {"first": "won", "second": "lost", "tie": "tied"}
        return words[comparison.better]


def create_comparer(config: ShadowConfig) -> Comparer:
    return JudgeComparer(config.judge) if config.judge else RagComparer(config)
