"""Gather the evidence for rewards through the run's gateway, then compute the rewards.

async with Scorer("http://127.0.0.1:8200", RewardConfig()) as scorer:
    terms = await scorer.score(prompt, "虾青素软胶囊 每日服用频次")
"""

from collections.abc import Callable, Coroutine, Sequence
from typing import Any, NamedTuple

from qinglan.concurrency import AsyncClosing, gather_or_cancel
from qinglan.errors import RowError
from qinglan.llm.client import GatewayClient
from qinglan.llm.usable_answer import MAX_LINE_CHARACTERS
from qinglan.rag.client import RagClient
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
from qinglan.reward.style_client import StyleClient
from qinglan.reward.terms import floor_checks
from qinglan.reward.terms.reward_terms import compute_reward_terms, retrieval_quality

STEP = "reward"


class Judgement(NamedTuple):
    """Scores of the student's and the teacher's rewrite, None if the judge was not asked or gave no usable answer."""

    scores: tuple[float, float] | None
    failed: bool = False
    control_pair: bool = False
    """True if the judge was tested on the prompt's control pair."""

    control_pair_failed: bool = False


class Scorer(AsyncClosing):
    """Scores many rollouts at once, with one set of clients and one imputer."""

    def __init__(self, gateway_url: str, config: RewardConfig) -> None:
        self._config = config
        self._gateway = GatewayClient(gateway_url, STEP)
        self._rag = RagClient.of_gateway(gateway_url)
        self._style = StyleClient(config.style) if config.style else None
        self._imputer = Imputer(FEATURE_COUNT)
        self._by_query = config.mode == "seed_v1"

    async def aclose(self) -> None:
        await self._gateway.aclose()
        await self._rag.aclose()
        if self._style:
            await self._style.aclose()

    async def score(self, prompt: TrainingPrompt, text: str) -> dict[str, float]:
        """Compute all terms of a rewrite's reward; raises for an outage, a spent budget or a wrong setting."""
        [terms] = await self.score_all([(prompt, text)])
        return terms

    async def score_all(self, rollouts: Sequence[tuple[TrainingPrompt, str]]) -> list[dict[str, float]]:
        """Score many rewrites: gather evidence for all of them, teach the imputer the judge's scores, then score.

        So a reward depends on the batch, but not on the order in which answers arrive. Equal rewrites of a prompt
        share their requests. The retrievals of the teacher's rewrite and of the question come with the row.
        """
        for prompt, _ in rollouts:
            refuse_other_retrieval(prompt, self._config.retrieval)
        stripped = [(prompt, floor_checks.strip_turn_end(text)) for prompt, text in rollouts]
        gathered = await self._gather_evidence(stripped)
        for episode, judgement in gathered:
            if judgement.scores is not None:
                for figures, score in zip(self._imputer_features(episode), judgement.scores, strict=True):
                    self._imputer.add(figures, score)
        return [self._compute_terms(episode, judgement) for episode, judgement in gathered]

    async def _gather_evidence(
        self, rollouts: Sequence[tuple[TrainingPrompt, str]]
    ) -> list[tuple[Episode, Judgement]]:
        """Return each rollout's episode, still without judge scores, and the judgement that holds these scores."""
        parsed = [(prompt, rewrite, self._query(rewrite)) for prompt, rewrite in rollouts]
        distinct = {_key(prompt, query): (prompt, query) for prompt, _, query in parsed}
        asks: list[Callable[[TrainingPrompt, str | None], Coroutine[Any, Any, Any]]] = [
            self._ask_judge,  # first, as it takes longest
            self._style_probability,
            self._retrieve,
        ]
        # All requests of a step wait at once: the gateway limits how many are sent.
        answers = await gather_or_cancel(
            *(gather_or_cancel(*(ask(*rewrite) for rewrite in distinct.values())) for ask in asks)
        )
        evidence = dict(zip(distinct, zip(*answers, strict=True), strict=True))
        gathered = []
        for prompt, rewrite, query in parsed:
            judgement, style, student = evidence[_key(prompt, query)]
            teacher, plain = validated_results(prompt, self._by_query)
            gathered.append((Episode(prompt, rewrite, student, teacher, plain, style=style), judgement))
        return gathered

    def _compute_terms(self, episode: Episode, judgement: Judgement) -> dict[str, float]:
        if judgement.scores is not None:
            scores = JudgeScores(*judgement.scores, judged=True)
        else:
            student, teacher = map(self._imputer.predict, self._imputer_features(episode))
            scores = JudgeScores(student, teacher, judged=False, failed=judgement.failed)
        return compute_reward_terms(episode._replace(judged=scores), self._config) | {
            "control_pair": float(judgement.control_pair),
            "control_pair_failed": float(judgement.control_pair_failed),
        }

    def _query(self, rewrite: str) -> str | None:
        """Return a rewrite as query to search and judge; None if it is unusable. The mode seed_v1 accepts markup."""
        if floor_checks.is_empty(rewrite) or len(rewrite) > MAX_LINE_CHARACTERS:
            return None
        if self._config.mode == "anchored_v2" and floor_checks.is_malformed(rewrite):
            return None
        return rewrite

    async def _retrieve(self, prompt: TrainingPrompt, query: str | None) -> RetrievalResult:
        """Retrieve with the same settings as validation did for the teacher's rewrite and the question."""
        if query is None:
            return EMPTY_RETRIEVAL
        request = self._config.retrieval.request(prompt.question, query, prompt.need, prompt.tenant_id)
        data = (await self._rag.retrieve(request)).data
        refuse_other_service(prompt, data)
        return read_retrieval_result(data, self._by_query)

    async def _ask_judge(self, prompt: TrainingPrompt, rewrite: str | None) -> Judgement:
        """Ask the judge if the prompt is a training prompt in the judged sample and the rewrite is usable."""
        config, system = self._config, self._config.judge_prompt
        if rewrite is None or prompt.split != "train":  # checkpoints are chosen by retrieval only
            return Judgement(None)
        if not in_sample(prompt.id, config.judge_share, config.seed, "judge"):
            return Judgement(None)
        try:
            student, teacher = await gather_or_cancel(
                *(score_rewrite(self._gateway, prompt, text, system) for text in (rewrite, prompt.teacher_rewrite))
            )
        except RowError:
            return Judgement(None, failed=True)
        if not in_sample(prompt.id, config.control_pair_share, config.seed, "control-pair"):
            return Judgement((student, teacher))
        try:
            passed = await passes_control_pair(self._gateway, prompt, system)
        except RowError:
            passed = False
        return Judgement((student, teacher), control_pair=True, control_pair_failed=not passed)

    async def _style_probability(self, prompt: TrainingPrompt, rewrite: str | None) -> float:
        """Return the style's probability; 0 without a style service, and for an unusable or refused rewrite."""
        if not (self._style and rewrite):
            return 0.0
        try:
            return await self._style.probability(prompt.question, rewrite)
        except RowError:
            return 0.0

    def _imputer_features(self, episode: Episode) -> list[list[float]]:
        """Return the features of the student's rewrite and of the teacher's rewrite, in this order."""
        prompt = episode.prompt
        sides = ((episode.rewrite, episode.student), (prompt.teacher_rewrite, episode.teacher))
        return [
            features(prompt, text, retrieval_quality(side, prompt, self._config), side.top1) for text, side in sides
        ]


def _key(prompt: TrainingPrompt, query: str | None) -> tuple[str, str, str | None]:
    """Return a rollout's key. Rollouts with equal keys share their evidence. Ids are unique only within a tenant."""
    return prompt.tenant_id, prompt.id, query
