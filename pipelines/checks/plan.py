"""`qinglan plan`: the calls, cost and time of a run, counted from its sheet before anything is spent."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import date
from itertools import islice
from typing import NamedTuple

from pydantic import Field

from components.training.ppo import fit as ppo
from components.training.sft.config import COMPARED_ROWS
from pipelines.checks.preflight import (
    knowledge_bases,
    known_gold,
    long_row_warnings,
    repeated_row_warnings,
    rows_in_words,
    sheet_refusals,
    whole_run_warnings,
)
from pipelines.checks.promotion import Promotion, promotion
from pipelines.checks.sizing.check import planned_fit_report
from pipelines.checks.sizing.needs import SERVE
from pipelines.checks.sizing.report import sheet_workload
from pipelines.checks.sizing.table import summary_lines
from pipelines.execute.cross_fit import cross_fit_words
from pipelines.lines.rewriter import REWRITER, RunConfig
from pipelines.lines.sheet import Sheet, read_sheet, unknown_gold, with_folds
from qinglan.config import Config
from qinglan.errors import QinglanError
from qinglan.llm.config import PaidModel
from qinglan.llm.provider_quirks import has_batches
from qinglan.llm.providers.prices import cost, estimate_tokens
from qinglan.prompts import (
    Message,
    choice_messages,
    hindsight_messages,
    judge_messages,
    label_messages,
    need_messages,
    pseudo_messages,
    teacher_messages,
)
from qinglan.rag.knowledge_base import read_knowledge_base, searched_text
from qinglan.rows.rows import Question

ANSWER_TOKENS = {
    "rewrites": 40, "needs": 30, "judgements": 90, "labels": 40, "confirmations": 40, "choices": 15,
    "hindsight rewrites": 40, "pseudo questions": 120, "further rows": 80,
}  # fmt: skip
"""Usual output tokens of an answer, by its kind; the limits are in the profile."""

SYSTEMS = 5
"""Number of systems that the evaluation compares: no rewrite, history, teacher, SFT, RL."""

FIRST_PASSAGES = 2
"""Number of passages that are judged for every row: the first hit of the rewrite and the first hit of the need."""

HEADING_CHARACTERS = 60
PASSAGES_MEASURED = 200
RETRIEVAL_SECONDS = 0.05
STALE_DAYS = 90
PREPAID_STEPS = frozenset({"generate", "validate"})
"""Steps whose paid calls are all known from the sheet, so that `qinglan prepay` can pay for them."""


class PlanStep(Config):
    """One kind of call that a run makes."""

    step: str
    what: str
    model: str
    calls: int
    input_tokens: int
    output_tokens: int
    cost: float
    seconds: float
    """Duration at the gateway's limits; the service's own limits may be lower."""

    prepaid_cost: float | None = None
    """Cost if `qinglan prepay` pays for the calls; None if it cannot."""


class Plan(Config):
    stages: tuple[str, ...]
    """The stages of the run, in order."""

    rows: int
    unfit: int
    """Rows that are not valid questions; they are quarantined and not paid for."""

    unfit_rows: tuple[str, ...]
    """The unfit rows, each with the reason."""

    steps: tuple[PlanStep, ...]
    cost: float
    seconds: float
    prepaid_cost: float
    """Total cost if `qinglan prepay` pays for all the calls that it can."""

    training: str
    """Steps and rollouts of the reinforcement learning, in words; empty if the run ends before it."""

    budget: float
    currency: str
    pays: bool
    splits: dict[str, int]
    """Rows by split: the split that the sheet states, else the one that the convert stage will draw."""

    cross_fitted: str
    """Explanation of how a sheet too small for a locked test is tested; empty if a test is locked away."""

    promotion: Promotion
    """Known refusals and obstacles to a promotion of the run's model by the gate."""

    fit: tuple[str, ...] = ()
    """Memory, steps and hours of the trainings, in words; empty if the shape of a model is not known."""

    warnings: tuple[str, ...] = Field(default=())
    missing: tuple[str, ...] = Field(default=())
    """Everything that a run on this machine still lacks, each as a text of one or more lines."""


class TrainingCalls(NamedTuple):
    """Upper bounds of the calls in training; repeated texts are answered from the journal and cost nothing."""

    rollouts: int
    steps: int
    judgements: int
    retrievals: int


class TokenCount(NamedTuple):
    calls: int = 0
    input: int = 0

    def of(self, calls: int) -> "TokenCount":
        """Scale the tokens to another number of calls of the same average length."""
        return TokenCount(calls, round(self.input / self.calls * calls) if self.calls else 0)

    def plus(self, messages: list[Message]) -> "TokenCount":
        return TokenCount(self.calls + 1, self.input + sum(estimate_tokens(m["content"]) for m in messages))


CallTokens = Mapping[str, TokenCount]
"""Input tokens of the paid calls for the sheet's rows, by the kind of answer."""


def count_tokens(config: RunConfig) -> tuple[Sheet, CallTokens]:
    """Read the sheet and count the tokens of the calls for its rows, in one pass."""
    tokens: dict[str, TokenCount] = defaultdict(TokenCount)
    passage = typical_passage(config)

    def count(row: Question) -> None:
        for kind, messages in row_prompts(row, config, passage).items():
            tokens[kind] = tokens[kind].plus(messages)

    return read_sheet(config, count), tokens


def row_prompts(row: Question, config: RunConfig, passage: str) -> dict[str, list[Message]]:
    """Write a prompt for each kind of call that a run may make for the row; `passage` stands for any passage."""
    prompts = {
        "rewrites": teacher_messages(row, config.generate.system_prompt),
        "judgements": judge_messages(row, row.question, config.ppo.reward.judge_prompt),
        "hindsight rewrites": hindsight_messages(row, "", passage),
        "pseudo questions": pseudo_messages("", passage, row),
    }
    if not row.need:
        prompts["needs"] = need_messages(row, config.validate_.need_prompt)
    if not row.gold:
        need, headings = row.need or row.question, [passage[:HEADING_CHARACTERS]] * config.label.listed
        prompts["labels"] = label_messages(need, "", passage)
        prompts["choices"] = choice_messages(need, headings, config.label.chosen)
    return prompts


def make_plan(
    config: RunConfig,
    today: date | None = None,
    missing: Sequence[QinglanError] = (),
    warnings: Sequence[str] = (),
    snapshot: bool | None = None,
    stages: Sequence[str] = REWRITER.until(REWRITER.last),
    counted: tuple[Sheet, CallTokens] | None = None,
) -> Plan:
    """Count the calls and the cost of a run of these stages from its sheet; no service is called.

    The caller has checked the input files. The plan shows its findings: `missing`, `warnings`, and `snapshot`, which
    is True if the RAG service names its knowledge base. `counted` is the sheet, if it was read already.
    """
    sheet, tokens = counted or count_tokens(config)
    config = with_folds(config, sheet)
    known = known_gold(config, sheet) if config.knowledge_base else {}
    chance = promotion(config, sheet, snapshot, refusals=sheet_refusals(config, sheet, known, stages))
    if "evaluate" not in stages:  # no row is tested, so that no fold trains
        sheet = replace(sheet, folds=[], near_duplicates=sheet.near_duplicates[:1])
    steps = tuple(step for step in _steps(config, sheet, tokens) if step.step in stages)
    total, learned, training = sum(step.cost for step in steps), training_calls(config, sheet), ""
    if "ppo" in stages:
        training = f"PPO takes {learned.steps:,} steps of {config.ppo.collection:,} rollouts: {learned.rollouts:,}."
    report = None
    if {"sft", "ppo"} & {*stages}:
        served = [SERVE] if "register" in stages else []
        report = planned_fit_report(config, config.training, sheet_workload(sheet), {*stages, *served})
    return Plan(
        stages=tuple(stages),
        rows=sheet.splits.total(),
        unfit=len(sheet.unfit),
        unfit_rows=tuple(sheet.unfit),
        steps=steps,
        cost=total,
        seconds=sum(step.seconds for step in steps),
        prepaid_cost=sum(step.cost if step.prepaid_cost is None else step.prepaid_cost for step in steps),
        training=training,
        budget=config.gateway.budget,
        currency=config.gateway.teacher.price.currency,
        pays=config.pays,
        splits=dict(sorted(sheet.splits.items())),
        cross_fitted=cross_fit_words(config, sheet),
        promotion=chance,
        fit=tuple(summary_lines(report)) if report else (),
        warnings=(
            *_warnings(config, sheet, known, stages, total, today or date.today()),
            *warnings,
        ),
        missing=tuple(map(str, missing)),
    )


def typical_passage(config: RunConfig) -> str:
    """Return a text as long as the average passage or, without a knowledge base, as long as a passage may be."""
    longest = config.label.passage_characters
    if config.knowledge_base is None:
        return "段" * longest
    first = next(iter(knowledge_bases(config).values()))
    passages = islice(read_knowledge_base(first), PASSAGES_MEASURED)
    lengths = [min(len(searched_text(passage)), longest) for passage in passages]
    return "段" * round(sum(lengths) / len(lengths))


def _steps(config: RunConfig, sheet: Sheet, tokens: CallTokens) -> tuple[PlanStep, ...]:
    models, learned, rows = config.gateway.models(), training_calls(config, sheet), sheet.splits.total()
    judged = tokens["judgements"].of(learned.judgements)
    examined = tokens["judgements"].of(SYSTEMS * min(config.evaluate.examined_rows, sheet.test_rows))
    # SFT with and without the teacher's further rows is compared on dev, in each training.
    trainings = 2 * (1 + len(sheet.folds)) if config.trains_sft_twice else 0
    compared = trainings * min(sheet.splits["dev"], COMPARED_ROWS)
    # If the gate decides by labels, each system's first passage is judged for every test row without gold.
    pooled_rows = min(tokens["labels"].calls, sheet.test_rows) if config.evaluate.gate.by == "labels" else 0
    pooled_labels = tokens["labels"].of(SYSTEMS * pooled_rows)
    pooled = [_paid_step(config, "evaluate", "labels", pooled_labels, models["examiner"])] if pooled_rows else []
    return (
        _paid_step(config, "generate", "rewrites", tokens["rewrites"], models["teacher"]),
        _paid_step(config, "validate", "needs", tokens["needs"], models["judge"]),
        _retrievals(config, "validate", 2 * rows),
        *_label_steps(config, tokens),
        *_augment_steps(config, sheet, tokens),
        *([_retrievals(config, "sft", compared)] if compared else []),
        _paid_step(config, "ppo", "judgements", judged, models["judge"]),
        _retrievals(config, "ppo", learned.retrievals),
        _paid_step(config, "evaluate", "judgements", examined, models["examiner"]),
        *pooled,
        _retrievals(config, "evaluate", SYSTEMS * sheet.test_rows),
    )


def _label_steps(config: RunConfig, tokens: CallTokens) -> tuple[PlanStep, ...]:
    """Plan the labelling at its highest possible cost, with no more calls than `label.calls` allows."""
    label, models, rows = config.label, config.gateway.models(), tokens["labels"].calls
    # Each judged passage costs a label by the judge and one by the examiner, and each row a choice from the list.
    judged = min(FIRST_PASSAGES + label.chosen, label.calls_per_row)
    every = rows * (2 * judged + 1)
    allowed = min(1.0, label.calls / every, label.calls_per_row / (2 * judged + 1)) if rows else 0.0
    if not allowed:
        return ()
    labels = tokens["labels"].of(round(allowed * rows * judged))
    choices = tokens["choices"].of(round(allowed * rows))
    return (
        _paid_step(config, "label", "labels", labels, models["judge"]),
        _paid_step(config, "label", "choices", choices, models["judge"]),
        _paid_step(config, "label", "confirmations", labels, models["examiner"]),
        _retrievals(config, "label", rows),
    )


def _augment_steps(config: RunConfig, sheet: Sheet, tokens: CallTokens) -> tuple[PlanStep, ...]:
    """Plan the teacher's further rows at their highest possible cost."""
    augment, teacher = config.augment, config.gateway.models()["teacher"]
    relevant = sheet.splits["train"] if config.label.calls else len(sheet.gold)  # without labels only gold is known
    hindsight = min(augment.hindsight_calls, sheet.splits["train"], relevant)
    # A rewrite in hindsight is asked for once; each fold draws its own passages.
    pseudo = _pseudo_calls(config) * (1 + len(sheet.folds)) if sheet.splits["train"] else 0
    steps = (
        _paid_step(config, "augment", "hindsight rewrites", tokens["hindsight rewrites"].of(hindsight), teacher),
        _paid_step(config, "augment", "pseudo questions", tokens["pseudo questions"].of(pseudo), teacher),
        _retrievals(config, "augment", hindsight + 2 * pseudo),
    )
    return tuple(step for step in steps if step.calls)


def _pseudo_calls(config: RunConfig) -> int:
    """Return the highest number of questions from passages in one training; a small knowledge base lowers it."""
    augment = config.augment
    if config.knowledge_base is None:
        return augment.pseudo_calls
    passages = 0
    for path in knowledge_bases(config).values():
        with path.open("rb") as lines:
            passages += sum(1 for _ in lines)
    return min(augment.pseudo_calls, passages * augment.questions_per_passage)


def training_calls(config: RunConfig, sheet: Sheet) -> TrainingCalls:
    """Compute upper bounds of the calls in training; near duplicates and rows that a stage refuses count too."""
    share = config.ppo.reward.judge_share
    steps = sum(ppo.steps(config.ppo, rows).total for rows in sheet.trainings)
    rollouts, learning = steps * config.ppo.collection, sum(sheet.trainings)
    return TrainingCalls(
        rollouts=rollouts,
        steps=steps,
        judgements=round(share * (rollouts + learning)),
        retrievals=rollouts + 2 * learning,
    )


def _paid_step(config: RunConfig, step: str, what: str, tokens: TokenCount, model: PaidModel) -> PlanStep:
    output = tokens.calls * ANSWER_TOKENS[what]
    live = cost(model.price, input=tokens.input, output=output)
    # A stand-in costs nothing, and some hosts are known to have no batches.
    can_prepay = step in PREPAID_STEPS and config.pays and has_batches(model.base_url)
    return PlanStep(
        step=step, what=what, model=model.model, calls=tokens.calls, input_tokens=tokens.input,
        output_tokens=output, cost=live,
        seconds=tokens.calls * model.typical_seconds / config.gateway.limits.concurrency,
        prepaid_cost=live * model.batch_price_factor if can_prepay else None,
    )  # fmt: skip


def _retrievals(config: RunConfig, step: str, calls: int) -> PlanStep:
    at_once = config.gateway.rag.concurrency
    return PlanStep(
        step=step, what="retrievals", model="", calls=calls, input_tokens=0, output_tokens=0, cost=0.0,
        seconds=calls * RETRIEVAL_SECONDS / at_once,
    )  # fmt: skip


def _warnings(
    config: RunConfig, sheet: Sheet, known: dict[str, set[str]], stages: Sequence[str], total: float, today: date
) -> Iterator[str]:
    """Warn of facts about money and the sheet that a person should know before the run; none of them stops it."""
    if total > config.gateway.budget:
        yield f"The budget of {config.gateway.budget:g} ends this run early; it can be resumed with more."
    for role, model in config.gateway.models().items():
        age = (today - model.price.as_of).days
        if config.pays and age > STALE_DAYS:
            yield f"{role}'s price was read {age} days ago ({model.price.as_of}); read it again."
    yield from _gold_warnings(config, sheet, known)
    threshold = config.validate_.quality_threshold
    if config.stand_ins.rag and not sheet.gold and threshold:  # our RAG service is fitted to labelled rows
        yield (
            "No row names gold passages, so that the scores of our RAG service are not calibrated: "
            f"validate.quality_threshold {threshold:g} may accept all rewrites or none; 0 accepts what finds "
            "something."
        )
    if not sheet.with_history:
        copies = " The stand-in teacher then copies most questions as they are." if config.stand_ins.teacher else ""
        yield (
            "No row has a history: each question is rewritten alone, and what it leaves out cannot be filled in."
            f"{copies} If the sheet has such a column, name it in generate.columns.history_summary, now "
            f"{config.generate.columns.history_summary!r}."
        )
    yield from long_row_warnings(config, sheet, stages)
    yield from repeated_row_warnings(config, sheet, stages)
    yield from whole_run_warnings(config, sheet, stages)


def _gold_warnings(config: RunConfig, sheet: Sheet, known: dict[str, set[str]]) -> list[str]:
    if sheet.gold and config.knowledge_base is None:
        return [f"Gold passages of {len(sheet.gold):,} rows were not looked up: give --knowledge-base."]
    warnings = [
        f"--knowledge-base holds nothing of tenant {tenant}, whose rows name gold passages."
        for tenant in sorted({row.tenant_id for row in sheet.gold} - known.keys())
    ]
    partly = [row for row in unknown_gold(sheet.gold, known) if not row.every]
    if partly:
        warnings.append(f"{len(partly):,} rows name unknown gold passages beside known ones: {rows_in_words(partly)}")
    return warnings
