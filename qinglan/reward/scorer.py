"""Gathers the evidence for rewards through the run's gateway, then computes them.

async with Scorer("http://127.0.0.1:8200", RewardConfig()) as scorer:
    terms = await scorer.score(prompt, "虾青素软胶囊 每日服用频次")
"""

from collections.abc import Callable, Coroutine, Mapping, Sequence
from types import TracebackType
from typing import Any, NamedTuple, Self, TypeVar

from qinglan.concurrency import gather_or_cancel
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
Key = TypeVar("Key")
Answer = TypeVar("Answer")


class ParsedRollout(NamedTuple):
    """One rollout: its rewrite, and the query to search and judge, None where the rewrite is unusable."""

    prompt: TrainingPrompt
    rewrite: str
    query: str | None


class Judgement(NamedTuple):
    """The judge's scores of student and teacher; None where it was not asked or gave nothing usable."""

    scores: tuple[float, float] | None
    failed: bool = False
    control_pair: bool = False
    """The judge was tested on the prompt's control pair."""

    control_pair_failed: bool = False


class Evidence(NamedTuple):
    """All that was gathered about one rewrite."""

    prompt: TrainingPrompt
    rewrite: str
    student: RetrievalResult
    teacher: RetrievalResult
    plain: RetrievalResult
    judgement: Judgement
    style: float


class Scorer:
    """Scores many rollouts at once, with one set of clients and one imputer."""

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
        """Score many rewrites: gather evidence for all of them, teach the imputer the judge's scores, then score.

        So a reward depends on the batch, and not on which answer came first. Equal rewrites of a prompt share their
        requests; retrievals of teacher and question come with the row.
        """
        for prompt, _ in rollouts:
            refuse_other_retrieval(prompt, self._config.retrieval)
        gathered = await self._gather_evidence([self._parse(prompt, text) for prompt, text in rollouts])
        for evidence in gathered:
            self._learn(evidence)
        return [self._compute_terms(evidence) for evidence in gathered]

    async def _gather_evidence(self, parsed: Sequence[ParsedRollout]) -> list[Evidence]:
        rewrites = {_key(*rollout): (rollout.prompt, rollout.query) for rollout in parsed}
        work: list[Coroutine[Any, Any, Any]] = [
            _gather_by_key(rewrites, self._ask_judge),  # first, as it takes longest
            _gather_by_key(rewrites, self._style_probability),
            _gather_by_key(rewrites, self._retrieve),
        ]
        judgements, styles, retrievals = await gather_or_cancel(*work)
        return [
            Evidence(
                rollout.prompt, rollout.rewrite, retrievals[key], *validated_results(rollout.prompt, self._by_query),
                judgements[key], styles[key],
            )
            for rollout in parsed
            for key in [_key(*rollout)]
        ]  # fmt: skip

    def _compute_terms(self, evidence: Evidence) -> dict[str, float]:
        prompt, rewrite, student, teacher, plain, judgement, style = evidence
        episode = Episode(prompt, rewrite, student, teacher, plain, self._judge_scores(evidence), style)
        terms = compute_reward_terms(episode, self._config)
        terms["control_pair"] = float(judgement.control_pair)
        terms["control_pair_failed"] = float(judgement.control_pair_failed)
        return terms

    def _parse(self, prompt: TrainingPrompt, text: str) -> ParsedRollout:
        rewrite = floor_checks.strip_turn_end(text)
        return ParsedRollout(prompt, rewrite, self._query(rewrite))

    def _query(self, rewrite: str) -> str | None:
        """The query that is searched and judged; None where the rewrite is unusable. seed_v1 accepts markup."""
        if floor_checks.is_empty(rewrite) or len(rewrite) > MAX_LINE_CHARACTERS:
            return None
        if self._config.mode == "anchored_v2" and floor_checks.is_malformed(rewrite):
            return None
        return rewrite

    async def _retrieve(self, prompt: TrainingPrompt, query: str | None) -> RetrievalResult:
        """Retrieve with the same request that validation made for teacher and question."""
        if query is None:
            return EMPTY_RETRIEVAL
        request = self._config.retrieval.request(prompt.question, query, prompt.need, prompt.tenant_id)
        data = (await self._rag.retrieve(request)).data
        refuse_other_service(prompt, data)
        return read_retrieval_result(data, self._by_query)

    async def _ask_judge(self, prompt: TrainingPrompt, rewrite: str | None) -> Judgement:
        """Ask the judge, if the prompt is in the sample and there is a rewrite to judge."""
        config = self._config
        if rewrite is None or prompt.split != "train":  # checkpoints are chosen by retrieval alone
            return Judgement(None)
        if not in_sample(prompt.id, config.judge_share, config.seed, "judge"):
            return Judgement(None)
        tests_judge = in_sample(prompt.id, config.control_pair_share, config.seed, "control-pair")
        try:
            texts, system = (rewrite, prompt.teacher_rewrite), config.judge_prompt
            student, teacher = await gather_or_cancel(
                *(score_rewrite(self._gateway, prompt, text, system) for text in texts)
            )
        except RowError:
            return Judgement(None, failed=True)
        pair_failed = tests_judge and not await self._passes_control_pair(prompt)
        return Judgement((student, teacher), control_pair=tests_judge, control_pair_failed=pair_failed)

    async def _passes_control_pair(self, prompt: TrainingPrompt) -> bool:
        """Test the judge on the control pair; an unusable answer counts as failed."""
        try:
            return await passes_control_pair(self._gateway, prompt, self._config.judge_prompt)
        except RowError:
            return False

    async def _style_probability(self, prompt: TrainingPrompt, rewrite: str | None) -> float:
        """Probability of the style; 0 without a style service, and for an unusable or a refused rewrite."""
        if not (self._style and rewrite):
            return 0.0
        try:
            return await self._style.probability(prompt.question, rewrite)
        except RowError:
            return 0.0

    def _learn(self, evidence: Evidence) -> None:
        """Teach the imputer the judge's scores of both rewrites."""
        if evidence.judgement.scores is not None:
            for figures, judged in zip(self._imputer_features(evidence), evidence.judgement.scores, strict=True):
                self._imputer.add(figures, judged)

    def _judge_scores(self, evidence: Evidence) -> JudgeScores:
        """The judge's scores; else the imputer's estimates."""
        if evidence.judgement.scores is not None:
            return JudgeScores(*evidence.judgement.scores, judged=True)
        student, teacher = (self._imputer.predict(figures) for figures in self._imputer_features(evidence))
        return JudgeScores(student, teacher, judged=False, failed=evidence.judgement.failed)

    def _imputer_features(self, evidence: Evidence) -> tuple[list[float], list[float]]:
        return (
            self._features(evidence.prompt, evidence.rewrite, evidence.student),
            self._features(evidence.prompt, evidence.prompt.teacher_rewrite, evidence.teacher),
        )

    def _features(self, prompt: TrainingPrompt, text: str, side: RetrievalResult) -> list[float]:
        return features(prompt, text, retrieval_quality(side, prompt, self._config), side.top1)


def _key(prompt: TrainingPrompt, _: str, query: str | None) -> tuple[str, str, str | None]:
    """What two rollouts share if their evidence is the same; ids are unique only within a tenant."""
    return prompt.tenant_id, prompt.id, query


async def _gather_by_key(
    rewrites: Mapping[Key, tuple[TrainingPrompt, str | None]],
    ask: Callable[[TrainingPrompt, str | None], Coroutine[Any, Any, Answer]],
) -> dict[Key, Answer]:
    """Call `ask` for all rewrites at once; answers are by key."""
    return dict(zip(rewrites, await gather_or_cancel(*(ask(*rewrite) for rewrite in rewrites.values())), strict=True))
