"""Gathers what a reward needs through the run's gateway, then scores it.

async with Scorer("http://127.0.0.1:8200", RewardConfig()) as scorer:
    terms = await scorer.score(prompt, "虾青素软胶囊 每日服用频次")
"""

from collections.abc import Callable, Coroutine, Mapping, Sequence
from types import TracebackType
from typing import Any, NamedTuple, Self, TypeVar

from qinglan.concurrency import gather_or_cancel
from qinglan.errors import RowError
from qinglan.llm.client import MAX_LINE_CHARACTERS, GatewayClient
from qinglan.rag.client import RagClient
from qinglan.reward import floor_checks
from qinglan.reward.config import RewardConfig
from qinglan.reward.episode import (
    EMPTY_RETRIEVAL,
    Episode,
    JudgeScores,
    RetrievalResult,
    TrainingPrompt,
    read_retrieval_result,
    refuse_other_retrieval,
    refuse_other_service,
    validated_results,
)
from qinglan.reward.impute import FEATURE_COUNT, Imputer, features, in_sample
from qinglan.reward.judge import passes_control_pair, score_rewrite
from qinglan.reward.reward_terms import compute_reward_terms, retrieval_quality
from qinglan.reward.style_client import StyleClient

STEP = "reward"
Key = TypeVar("Key")
Answer = TypeVar("Answer")


class ParsedRollout(NamedTuple):
    """One rollout: its rewrite, and what of it can be searched and judged."""

    prompt: TrainingPrompt
    rewrite: str
    query: str | None


class Judgement(NamedTuple):
    """What the judge said of student and teacher; None where it was not asked or gave nothing usable."""

    scores: tuple[float, float] | None
    failed: bool = False
    canary: bool = False
    canary_failed: bool = False


class Evidence(NamedTuple):
    """All that was asked about one rewrite."""

    prompt: TrainingPrompt
    rewrite: str
    student: RetrievalResult
    teacher: RetrievalResult
    plain: RetrievalResult
    opinion: Judgement
    style: float


class Scorer:
    """One set of clients and one imputer; as many scores under way as there are rollouts."""

    def __init__(self, gateway_url: str, config: RewardConfig) -> None:
        self._config = config
        self._gateway = GatewayClient(gateway_url, STEP)
        self._rag = RagClient.of_gateway(gateway_url)
        self._style = StyleClient(config.style) if config.style else None
        self._imputer = Imputer(FEATURE_COUNT)
        self._by_query = config.mode == "seed_v1"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        await self._gateway.__aexit__(None, None, None)
        await self._rag.aclose()
        if self._style:
            await self._style.aclose()

    async def score(self, prompt: TrainingPrompt, text: str) -> dict[str, float]:
        """Every term of the rewrite's reward; an outage, a spent budget or a wrong setting is raised."""
        [terms] = await self.score_all([(prompt, text)])
        return terms

    async def score_all(self, rollouts: Sequence[tuple[TrainingPrompt, str]]) -> list[dict[str, float]]:
        """The same for many rewrites: all are asked about together, and the judge's answers are learned from first.

        So a reward follows from what stands in the batch, and not from whose answer came first. The same rewrite of a
        prompt is asked about once; what teacher and question retrieve comes with the row.
        """
        for prompt, _ in rollouts:
            refuse_other_retrieval(prompt, self._config.retrieval)
        written = [
            ParsedRollout(prompt, rewrite := floor_checks.strip_turn_end(text), self._query(rewrite))
            for prompt, text in rollouts
        ]
        evidence = await self._evidence(written)
        for one in evidence:
            self._learn(one)
        return [self._scored(one) for one in evidence]

    async def _evidence(self, written: Sequence[ParsedRollout]) -> list[Evidence]:
        rewrites = {(one.prompt.id, one.query): (one.prompt, one.query) for one in written}
        work: list[Coroutine[Any, Any, Any]] = [
            _gather_by_key(rewrites, self._opinion),  # first, as it takes longest
            _gather_by_key(rewrites, self._styled),
            _gather_by_key(rewrites, self._find),
        ]
        opinions, styles, found = await gather_or_cancel(*work)
        return [
            Evidence(
                prompt, rewrite, found[prompt.id, query], *validated_results(prompt, self._by_query),
                opinions[prompt.id, query], styles[prompt.id, query],
            )
            for prompt, rewrite, query in written
        ]  # fmt: skip

    def _scored(self, one: Evidence) -> dict[str, float]:
        episode = Episode(one.prompt, one.rewrite, one.student, one.teacher, one.plain, self._judged(one), one.style)
        canary = {"canary": float(one.opinion.canary), "canary_failed": float(one.opinion.canary_failed)}
        return compute_reward_terms(episode, self._config) | canary

    def _query(self, rewrite: str) -> str | None:
        """What is searched and judged, if anything is; the plan's mode takes markup for a query."""
        if floor_checks.is_empty(rewrite) or len(rewrite) > MAX_LINE_CHARACTERS:
            return None
        return rewrite if self._config.mode == "seed_v1" or not floor_checks.is_malformed(rewrite) else None

    async def _find(self, prompt: TrainingPrompt, query: str | None) -> RetrievalResult:
        """The same request that validation made for teacher and question."""
        if query is None:
            return EMPTY_RETRIEVAL
        request = self._config.retrieval.request(prompt.question, query, prompt.need, prompt.tenant_id)
        data = (await self._rag.retrieve(request)).data
        refuse_other_service(prompt, data)
        return read_retrieval_result(data, self._by_query)

    async def _opinion(self, prompt: TrainingPrompt, rewrite: str | None) -> Judgement:
        """The judge's, where the prompt is in the sample and there is something to judge."""
        config = self._config
        if rewrite is None or prompt.split != "train":  # a checkpoint is chosen by what it finds
            return Judgement(None)
        if not in_sample(prompt.id, config.judge_share, config.seed, "judge"):
            return Judgement(None)
        trial = in_sample(prompt.id, config.canary_share, config.seed, "canary")
        try:
            student, teacher = await gather_or_cancel(
                *(score_rewrite(self._gateway, prompt, text) for text in (rewrite, prompt.teacher_rewrite))
            )
        except RowError:
            return Judgement(None, failed=True)
        failed = trial and not await self._canary(prompt)
        return Judgement((student, teacher), canary=trial, canary_failed=failed)

    async def _canary(self, prompt: TrainingPrompt) -> bool:
        """A judge that gives no answer to a plain case has failed it."""
        try:
            return await passes_control_pair(self._gateway, prompt)
        except RowError:
            return False

    async def _styled(self, prompt: TrainingPrompt, rewrite: str | None) -> float:
        return await self._style.wanted(prompt.question, rewrite) if self._style and rewrite else 0.0

    def _learn(self, one: Evidence) -> None:
        """What the judge said of both rewrites."""
        if one.opinion.scores is not None:
            for seen, judged in zip(self._sides(one), one.opinion.scores, strict=True):
                self._imputer.add(seen, judged)

    def _judged(self, one: Evidence) -> JudgeScores:
        """The judge's scores; else what they would probably be."""
        if one.opinion.scores is not None:
            return JudgeScores(*one.opinion.scores, judged=True)
        student, teacher = (self._imputer.predict(seen) for seen in self._sides(one))
        return JudgeScores(student, teacher, judged=False, failed=one.opinion.failed)

    def _sides(self, one: Evidence) -> tuple[list[float], list[float]]:
        return (
            self._features(one.prompt, one.rewrite, one.student),
            self._features(one.prompt, one.prompt.teacher_rewrite, one.teacher),
        )

    def _features(self, prompt: TrainingPrompt, text: str, side: RetrievalResult) -> list[float]:
        return features(prompt, text, retrieval_quality(side, prompt.gold, self._config), side.top1)


async def _gather_by_key(
    given: Mapping[Key, tuple[TrainingPrompt, str | None]],
    ask: Callable[[TrainingPrompt, str | None], Coroutine[Any, Any, Answer]],
) -> dict[Key, Answer]:
    """The answer for each key, asked together."""
    return dict(zip(given, await gather_or_cancel(*(ask(*one) for one in given.values())), strict=True))
