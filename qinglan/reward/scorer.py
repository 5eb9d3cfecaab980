"""Gathers what a reward needs through the run's gateway, then scores it.

async with Scorer("http://127.0.0.1:8200", RewardConfig()) as scorer:
    terms = await scorer.score(prompt, "虾青素软胶囊 每日服用频次")
"""

from collections.abc import Callable, Coroutine, Mapping, Sequence
from types import TracebackType
from typing import Any, NamedTuple, Self, TypeVar

from qinglan.errors import DataError, RowError
from qinglan.llm.client import LONGEST_LINE, Gateway
from qinglan.ordered import together
from qinglan.rag.client import RagClient
from qinglan.rag.contract import RagRequest
from qinglan.reward import floors
from qinglan.reward.config import RewardConfig
from qinglan.reward.episode import NOTHING, Episode, Found, Judged, Prompt, found
from qinglan.reward.impute import FEATURES, Imputer, features, sampled
from qinglan.reward.judge import passes_canary, rated
from qinglan.reward.score import quality, score
from qinglan.reward.style import StyleClient

STEP = "reward"
KNOWN = 10_000
"""Answers that are remembered; of ten passages each, some 80 MB."""

Key = TypeVar("Key")
Answer = TypeVar("Answer")


class Written(NamedTuple):
    """One rollout: its rewrite, and what of it can be searched and judged."""

    prompt: Prompt
    rewrite: str
    query: str | None


class Opinion(NamedTuple):
    """What the judge said of student and teacher; None where it was not asked or gave nothing usable."""

    scores: tuple[float, float] | None
    failed: bool = False
    canary: bool = False
    canary_failed: bool = False


class Evidence(NamedTuple):
    """All that was asked about one rewrite."""

    prompt: Prompt
    rewrite: str
    student: Found
    teacher: Found
    plain: Found
    opinion: Opinion
    style: float


class Scorer:
    """One set of clients and one imputer; as many scores under way as there are rollouts."""

    def __init__(self, gateway_url: str, config: RewardConfig) -> None:
        self._config = config
        self._gateway = Gateway(gateway_url, STEP)
        self._rag = RagClient.of_gateway(gateway_url)
        self._style = StyleClient(config.style) if config.style else None
        self._imputer = Imputer(FEATURES)
        self._known: dict[tuple[str, str], Found] = {}

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
        written = [Written(prompt, rewrite := floors.answer(text), self._query(rewrite)) for prompt, text in rollouts]
        evidence = await self._evidence(written)
        for one in evidence:
            self._learn(one)
        return [self._scored(one) for one in evidence]

    async def _evidence(self, written: Sequence[Written]) -> list[Evidence]:
        rewrites = {(one.prompt.id, one.query): (one.prompt, one.query) for one in written}
        searches = {
            (one.prompt.id, query): (one.prompt, query)
            for one in written
            for query in (one.query, one.prompt.teacher_rewrite, one.prompt.question)
        }
        work: list[Coroutine[Any, Any, Any]] = [
            _each(rewrites, self._opinion),  # first, as it takes longest
            _each(rewrites, self._styled),
            _each(searches, self._find),
        ]
        opinions, styles, found = await together(*work)
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
        return score(episode, self._config) | canary

    def _query(self, rewrite: str) -> str | None:
        """What is searched and judged, if anything is; the plan's mode takes markup for a query."""
        if floors.empty(rewrite) or len(rewrite) > LONGEST_LINE:
            return None
        return rewrite if self._config.mode == "seed_v1" or not floors.malformed(rewrite) else None

    async def _find(self, prompt: Prompt, query: str | None) -> Found:
        """The same request for student, teacher and question: what the row brings was asked with other settings.

        What teacher and question find is remembered: the same prompts come again with every pass and every test.
        """
        if query is None:
            return NOTHING
        if (known := self._known.get((prompt.id, query))) is not None:
            return known
        answer = await self._ask(prompt, query)
        if query in (prompt.teacher_rewrite, prompt.question):
            self._known[prompt.id, query] = answer
            if len(self._known) > KNOWN:
                del self._known[next(iter(self._known))]
        return answer

    async def _ask(self, prompt: Prompt, query: str) -> Found:
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
        return found(data)

    async def _opinion(self, prompt: Prompt, rewrite: str | None) -> Opinion:
        """The judge's, where the prompt is in the sample and there is something to judge."""
        config = self._config
        if rewrite is None or prompt.split != "train":  # a checkpoint is chosen by what it finds
            return Opinion(None)
        if not sampled(prompt.id, config.judge_share, config.seed, "judge"):
            return Opinion(None)
        trial = sampled(prompt.id, config.canary_share, config.seed, "canary")
        try:
            student, teacher = await together(
                *(rated(self._gateway, prompt, text) for text in (rewrite, prompt.teacher_rewrite))
            )
        except RowError:
            return Opinion(None, failed=True)
        failed = trial and not await self._canary(prompt)
        return Opinion((student, teacher), canary=trial, canary_failed=failed)

    async def _canary(self, prompt: Prompt) -> bool:
        """A judge that gives no answer to a plain case has failed it."""
        try:
            return await passes_canary(self._gateway, prompt)
        except RowError:
            return False

    async def _styled(self, prompt: Prompt, rewrite: str | None) -> float:
        return await self._style.wanted(prompt.question, rewrite) if self._style and rewrite else 0.0

    def _learn(self, one: Evidence) -> None:
        """What the judge said of both rewrites."""
        if one.opinion.scores is not None:
            for seen, judged in zip(self._sides(one), one.opinion.scores, strict=True):
                self._imputer.add(seen, judged)

    def _judged(self, one: Evidence) -> Judged:
        """The judge's scores; else what they would probably be."""
        if one.opinion.scores is not None:
            return Judged(*one.opinion.scores, judged=True)
        student, teacher = (self._imputer.predict(seen) for seen in self._sides(one))
        return Judged(student, teacher, judged=False, failed=one.opinion.failed)

    def _sides(self, one: Evidence) -> tuple[list[float], list[float]]:
        return (
            self._features(one.prompt, one.rewrite, one.student),
            self._features(one.prompt, one.prompt.teacher_rewrite, one.teacher),
        )

    def _features(self, prompt: Prompt, text: str, side: Found) -> list[float]:
        return features(prompt, text, quality(side, prompt.gold, self._config), side.top1)


async def _each(
    given: Mapping[Key, tuple[Prompt, str | None]], ask: Callable[[Prompt, str | None], Coroutine[Any, Any, Answer]]
) -> dict[Key, Answer]:
    """The answer for each key, asked together."""
    return dict(zip(given, await together(*(ask(*one) for one in given.values())), strict=True))
