"""Gathers what a reward needs through the run's gateway, then scores it.

async with Scorer("http://127.0.0.1:8200", RewardConfig()) as scorer:
    terms = await scorer.score(prompt, "虾青素软胶囊 每日服用频次")
"""

from collections.abc import Callable, Coroutine, Mapping, Sequence
from types import TracebackType
from typing import Any, NamedTuple, Self, TypeVar

from qinglan.concurrency import gather_or_cancel
from qinglan.errors import DataError, RowError
from qinglan.llm.client import MAX_LINE_CHARACTERS, GatewayClient
from qinglan.rag.client import RagClient
from qinglan.rag.contract import RagRequest
from qinglan.reward import floor_checks
from qinglan.reward.config import RewardConfig
from qinglan.reward.episode import (
    EMPTY_RETRIEVAL,
    Episode,
    JudgeScores,
    Prompt,
    RetrievalResult,
    read_retrieval_result,
)
from qinglan.reward.impute import FEATURE_COUNT, Imputer, features, in_sample
from qinglan.reward.judge import passes_control_pair, score_rewrite
from qinglan.reward.reward_terms import compute_reward_terms, retrieval_quality
from qinglan.reward.style_client import StyleClient

STEP = "reward"
MAX_CACHED_RETRIEVALS = 10_000
"""Answers that are remembered; of ten passages each, some 80 MB."""

Key = TypeVar("Key")
Answer = TypeVar("Answer")


class ParsedRollout(NamedTuple):
    """One rollout: its rewrite, and what of it can be searched and judged."""

    prompt: Prompt
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

    prompt: Prompt
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
        self._known: dict[tuple[str, str], RetrievalResult] = {}

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

    async def score(self, prompt: Prompt, text: str) -> dict[str, float]:
        """Every term of the rewrite's reward; an outage, a spent budget or a wrong setting is raised."""
        [terms] = await self.score_all([(prompt, text)])
        return terms

    async def score_all(self, rollouts: Sequence[tuple[Prompt, str]]) -> list[dict[str, float]]:
        """The same for many rewrites: all are asked about together, and the judge's answers are learned from first.

        So a reward follows from what stands in the batch, and not from whose answer came first. What several rollouts
        of a prompt have in common is asked once.
        """
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
        searches = {
            (one.prompt.id, query): (one.prompt, query)
            for one in written
            for query in (one.query, one.prompt.teacher_rewrite, one.prompt.question)
        }
        work: list[Coroutine[Any, Any, Any]] = [
            _gather_by_key(rewrites, self._opinion),  # first, as it takes longest
            _gather_by_key(rewrites, self._styled),
            _gather_by_key(searches, self._find),
        ]
        opinions, styles, found = await gather_or_cancel(*work)
        return [
            Evidence(
                prompt, rewrite, found[prompt.id, query], found[prompt.id, prompt.teacher_rewrite],
                found[prompt.id, prompt.question], opinions[prompt.id, query], styles[prompt.id, query],
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

    async def _find(self, prompt: Prompt, query: str | None) -> RetrievalResult:
        """The same request for student, teacher and question: what the row brings was asked with other settings.

        What teacher and question find is remembered: the same prompts come again with every pass and every test.
        """
        if query is None:
            return EMPTY_RETRIEVAL
        if (known := self._known.get((prompt.id, query))) is not None:
            return known
        answer = await self._ask(prompt, query)
        if query in (prompt.teacher_rewrite, prompt.question):
            self._known[prompt.id, query] = answer
            if len(self._known) > MAX_CACHED_RETRIEVALS:
                del self._known[next(iter(self._known))]
        return answer

    async def _ask(self, prompt: Prompt, query: str) -> RetrievalResult:
        config = self._config
        request = RagRequest(
            query=prompt.question, rewritten_query=query, tenant_id=prompt.tenant_id, kb_name=config.kb_name,
            need=prompt.need if config.mode == "anchored_v2" else None,
            top_k=config.top_k, score_threshold=config.score_threshold,
        )  # fmt: skip
        data = (await self._rag.retrieve(request)).data
        if prompt.snapshot and data.snapshot and data.snapshot != prompt.snapshot:
            raise DataError(
                f"row {prompt.id}: the RAG service answers from knowledge base {data.snapshot[:12]}, the row was "
                f"validated on {prompt.snapshot[:12]}. Serve that one, or validate and convert again."
            )
        return read_retrieval_result(data)

    async def _opinion(self, prompt: Prompt, rewrite: str | None) -> Judgement:
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

    async def _canary(self, prompt: Prompt) -> bool:
        """A judge that gives no answer to a plain case has failed it."""
        try:
            return await passes_control_pair(self._gateway, prompt)
        except RowError:
            return False

    async def _styled(self, prompt: Prompt, rewrite: str | None) -> float:
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

    def _features(self, prompt: Prompt, text: str, side: RetrievalResult) -> list[float]:
        return features(prompt, text, retrieval_quality(side, prompt.gold, self._config), side.top1)


async def _gather_by_key(
    given: Mapping[Key, tuple[Prompt, str | None]], ask: Callable[[Prompt, str | None], Coroutine[Any, Any, Answer]]
) -> dict[Key, Answer]:
    """The answer for each key, asked together."""
    return dict(zip(given, await gather_or_cancel(*(ask(*one) for one in given.values())), strict=True))
