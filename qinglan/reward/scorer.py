"""Gathers what a reward needs through the run's gateway, then scores it.

async with Scorer("http://127.0.0.1:8200", RewardConfig()) as scorer:
    terms = await scorer.score(prompt, "虾青素软胶囊 每日服用频次")
"""

import asyncio
from types import TracebackType
from typing import NamedTuple, Self

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


class Opinion(NamedTuple):
    """What the judge said of student and teacher; None where it was not asked or gave nothing usable."""

    scores: tuple[float, float] | None
    failed: bool = False
    canary: bool = False
    canary_failed: bool = False


class Scorer:
    """One set of clients and one imputer; as many scores under way as there are rollouts."""

    def __init__(self, gateway_url: str, config: RewardConfig) -> None:
        self._config = config
        self._gateway = Gateway(gateway_url, STEP)
        self._rag = RagClient.of_gateway(gateway_url)
        self._style = StyleClient(config.style) if config.style else None
        self._imputer = Imputer(FEATURES)

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
        rewrite = floors.answer(text)
        query = rewrite if self._searchable(rewrite) else None
        opinion, style, (student, teacher, plain) = await asyncio.gather(
            self._opinion(prompt, query),  # first, as it takes longest
            self._styled(prompt, query),
            together(*(self._find(prompt, text) for text in (query, prompt.teacher_rewrite, prompt.question))),
        )
        judged = self._judged(prompt, rewrite, student, teacher, opinion)
        terms = score(Episode(prompt, rewrite, student, teacher, plain, judged, style), self._config)
        return terms | {"canary": float(opinion.canary), "canary_failed": float(opinion.canary_failed)}

    def _searchable(self, rewrite: str) -> bool:
        """Whether there is a query to search and judge; the plan's mode takes markup for one."""
        if floors.empty(rewrite) or len(rewrite) > LONGEST_LINE:
            return False
        return self._config.mode == "seed_v1" or not floors.malformed(rewrite)

    async def _find(self, prompt: Prompt, query: str | None) -> Found:
        """The same request for student, teacher and question: what the row brings was asked with other settings."""
        if query is None:
            return NOTHING
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

    def _judged(self, prompt: Prompt, rewrite: str, student: Found, teacher: Found, opinion: Opinion) -> Judged:
        """The judge's scores, which are learned from; else what they would probably be."""
        student_seen = self._features(prompt, rewrite, student)
        teacher_seen = self._features(prompt, prompt.teacher_rewrite, teacher)
        if opinion.scores is None:
            imputed = self._imputer.predict(student_seen), self._imputer.predict(teacher_seen)
            return Judged(*imputed, judged=False, failed=opinion.failed)
        self._imputer.add(student_seen, opinion.scores[0])
        self._imputer.add(teacher_seen, opinion.scores[1])
        return Judged(*opinion.scores, judged=True)

    def _features(self, prompt: Prompt, text: str, side: Found) -> list[float]:
        return features(prompt, text, quality(side, prompt.gold, self._config), side.top1)
