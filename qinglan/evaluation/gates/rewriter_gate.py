"""Promote or hold a rewriter: a pure function of evaluation.json and thresholds, with its reasons in words.

The candidate must find the gold passage first more often than the teacher, surely; be no worse elsewhere; and stay
within what it may cost, copy, invent and write. The test must be one that no model learned from, the examiner another
than the training's judge, and everything it was made from named. What is missing, impossible or not a number holds
it, and so does a setting that is laxer than the limits (gate_limits.py).
"""

import math
from collections.abc import Iterator, Mapping
from functools import partial
from itertools import chain
from statistics import NormalDist
from typing import Any, Literal

from pydantic import Field

from qinglan.config import Config, Fraction, Positive
from qinglan.evaluation.gates.gate_limits import RewriterLimits
from qinglan.evaluation.gates.leaks import leak_reasons
from qinglan.evaluation.gates.verdict import (
    Check,
    Comparison,
    EvaluationNumbers,
    MissingNumberError,
    TooFew,
    Verdict,
    describe_uses,
    judged_models,
    limit_reasons,
    missing_digests,
    run_checks,
    with_description,
)
from qinglan.llm.providers.model_names import plain_model_name, same_model

PARENTS = {"sft": ("base_model", "train", "dev"), "rl": ("base_model", "sft_model", "train", "dev")}
"""Names on a model's card; a candidate's includes those of the models before it."""

LEARNED_FROM = {"sft": ("sft",), "rl": ("sft", "ppo")}
"""The rows behind a candidate, by the stage that reads them."""

OTHER_GATED_METRICS = {"ndcg": "nDCG@10", "recall": "recall@10"}
UNGATED_METRICS = {
    "quality": "quality by the examiner (1 to 5)",
    "judged_top1": "the first passage's score against the need",
}


BASELINES = (
    ("teacher_vs_plain", -1, "The teacher is worse than no rewrite"),
    ("history_vs_teacher", 1, "Question + history is better than the teacher"),
)
"""Pairs whose difference of this sign the verdict tells of, whatever it is."""

CROSS_FITTED = "Cross-fitted"
"""The beginning of the gate's line about a sheet without a locked test."""

UPPER_DEVIATIONS = NormalDist().inv_cdf(0.975)
"""Distance from a difference to the upper end of its 95 % interval in standard deviations."""

By = Literal["gold", "labels"]
FIRST_IN_WORDS = {"gold": "gold passage first", "labels": "right passage first, judged"}
LEAST_JUDGED = 0.95
"""Share of a system's first passages that the examiner must have judged in rows without gold: what it left out may
be anything."""


class GateConfig(Config):
    """Limits that a candidate must meet before it may serve. Whatever cannot be read holds it."""

    by: By = "gold"
    """Decides which passage is right. `gold`: people, in the sheet. `labels`: people where the sheet names gold, else
    the examiner, which grades each system's first passage of such a row and costs a call for each different one. The
    verdict, the report and the release then say that the figures are judged."""

    rows: Positive = 200
    """Fewer paired queries prove nothing: at 200 one share alone is uncertain by 4.5 points."""

    cross_rows: Positive = 50
    """Queries of a cross-fitted evaluation, at least; how little so few can show is in its intervals."""

    p: Fraction = 0.05
    """The permutation test's p of candidate against teacher must be below."""

    kind_margin: Fraction = 0.02
    """How far top-1 may be below the teacher's in a kind of question, or for a tenant. A larger loss holds the model
    where it is significant after Holm's correction over all of them; the report says what a kind with few questions
    leaves open."""

    margin: Fraction = 0.01
    """How far nDCG@10 and recall@10 may be below the teacher's, overall and per tenant."""

    length_ratio: float = Field(default=1.5, gt=0)
    """The candidate's mean length over the teacher's, at most."""

    copied: Fraction = 0.05
    """Share of rewrites that copy the history or a passage, at most."""

    invented: Fraction = 0.02
    """Share of rewrites with a number that nobody mentioned, at most."""

    zero_hit: Fraction = 0.01
    """How far the share of queries that find nothing may be above the teacher's."""

    alike: float = Field(default=0.8, gt=0, le=1)
    """A test row so like one of training or selection leaked (three-character pieces of question and history)."""

    cost_ratio: float = Field(default=1.0, gt=0)
    """The candidate's cost per 1,000 over the teacher's, at most."""


LIMITS = RewriterLimits()
"""The limits that hold everywhere; an organisation's trust policy may have stricter ones."""


def decide(evaluation: Mapping[str, Any], gate: GateConfig, limits: RewriterLimits = LIMITS) -> Verdict:
    """The verdict on evaluation's candidate; any doubt holds it."""
    candidate = str(evaluation.get("candidate", "rl"))
    within = partial(_within_limits, limits=limits)
    verdict = run_checks(evaluation, (within, *CHECKS), _praise, candidate, gate)
    numbers = EvaluationNumbers(evaluation)
    verdict = with_description(verdict, _describe_folds(numbers, candidate))
    return with_description(verdict, chain(_baseline_lines(numbers), describe_uses(numbers, gate.p)), last=True)


def _baseline_lines(numbers: EvaluationNumbers) -> Iterator[str]:
    """A sentence for each metric in which a simpler system surely beats the teacher. An evaluation from before these
    pairs were compared has none."""
    for pair, sign, words in BASELINES:
        for metric in ("", *OTHER_GATED_METRICS):
            path = ("paired", pair, metric) if metric else ("paired", pair)
            try:
                name = OTHER_GATED_METRICS.get(metric) or FIRST_IN_WORDS[decided_by(numbers)]
                gap, low, high = (100 * numbers(*path, end) for end in ("difference", "low", "high"))
            except MissingNumberError:
                continue
            if min(sign * low, sign * high) > 0:
                yield f"{words} by {name}: {gap:+.1f} points [{low:+.1f}, {high:+.1f}]."


def _describe_folds(numbers: EvaluationNumbers, candidate: str) -> Iterator[str]:
    """The way a small sheet was tested, with its figure, whatever the verdict."""
    if numbers.cross_fitted:
        against = _against_teacher(numbers, candidate)
        yield (
            f"Cross-fitted: {numbers('counts', 'rows'):.0f} questions, each rewritten by one of "
            f"{numbers('cross_fitted', 'folds'):.0f} models that did not learn from it. The figures are of these "
            f"siblings of the released model, which learned from all rows. {against.summary(numbers)}"
        )


def _within_limits(
    numbers: EvaluationNumbers, candidate: str, gate: GateConfig, limits: RewriterLimits
) -> Iterator[str]:
    yield from limit_reasons(numbers, gate, limits)


def _against_teacher(numbers: EvaluationNumbers, candidate: str) -> Comparison:
    path, by = ("paired", f"{candidate}_vs_teacher"), decided_by(numbers)
    title = f"{candidate.upper()} minus teacher, {FIRST_IN_WORDS[by]}"
    return Comparison(path, title, "the teacher", (*path, "n"), "queries")


def _check_query_count(numbers: EvaluationNumbers, candidate: str, gate: GateConfig) -> Iterator[str]:
    n, cross_fitted = numbers("paired", f"{candidate}_vs_teacher", "n"), numbers.cross_fitted
    if cross_fitted and n < gate.cross_rows:
        yield TooFew(f"Too few: {n:.0f} queries were cross-fitted, and {gate.cross_rows} are wanted. Label more.")
    if not cross_fitted and n < gate.rows:
        compared = "with gold passages" if gate.by == "gold" else "with gold passages or judged ones"
        yield TooFew(f"Too few: {n:.0f} queries {compared} were compared, and {gate.rows} are wanted.")


def _check_who_judged(numbers: EvaluationNumbers, candidate: str, gate: GateConfig) -> Iterator[str]:
    """The figures are of the kind that the gate goes by; by labels the examiner judged all systems, nearly wholly."""
    if not (judged := _judged_rows(numbers)):
        return
    if gate.by == "gold":
        yield f"The examiner judged {judged:.0f} rows without gold, and this gate goes by gold alone (gate.by)."
        return
    for name in (candidate, "teacher", "plain"):
        if (share := numbers("systems", name, "first_judged", "value")) < LEAST_JUDGED:
            yield (
                f"Of {name}'s first passages in rows without gold {share:.1%} have a grade of the examiner; at least "
                f"{LEAST_JUDGED:.0%} are needed. Its other answers could not be used: try another examiner."
            )


def _judged_rows(numbers: EvaluationNumbers) -> float:
    """Rows without gold that the examiner judged; an evaluation without this count is from before it did."""
    return numbers("counts", "judged") if numbers.has("counts", "judged") else 0.0


def decided_by(numbers: EvaluationNumbers) -> By:
    """Labels if the examiner judged some of the rows, else gold."""
    return "labels" if _judged_rows(numbers) else "gold"


def _better_than_teacher(numbers: EvaluationNumbers, candidate: str, gate: GateConfig) -> Iterator[str]:
    yield from _against_teacher(numbers, candidate).not_better(
        numbers, gate.p / judged_models(numbers), _power(numbers)
    )


def _better_than_plain(numbers: EvaluationNumbers, candidate: str, gate: GateConfig) -> Iterator[str]:
    at = ("paired", f"{candidate}_vs_plain")
    low, high, difference = (100 * numbers(*at, name) for name in ("low", "high", "difference"))
    measured = f"{candidate.upper()} minus no rewrite, top-1: {difference:+.1f} points [{low:+.1f}, {high:+.1f}]."
    if low > high:
        yield f"The interval is impossible. {measured}"
    elif high < 0:
        yield f"Worse than no rewrite. {measured}"
    elif low <= 0 or difference <= 0:
        yield f"Better than no rewrite: not shown. {measured}"


def _no_worse_elsewhere(numbers: EvaluationNumbers, candidate: str, gate: GateConfig) -> Iterator[str]:
    pair = f"{candidate}_vs_teacher"
    for metric in OTHER_GATED_METRICS:
        yield from _no_worse(numbers, gate, metric, "", "paired", pair, metric, "low")
    tenants = numbers.value("paired", pair, "tenants")
    if not isinstance(tenants, Mapping) or not tenants:
        raise MissingNumberError(f"paired.{pair}.tenants is empty")
    for tenant in tenants if len(tenants) > 1 else ():
        for metric in OTHER_GATED_METRICS:
            path = ("paired", pair, "tenants", tenant, metric, "low")
            yield from _no_worse(numbers, gate, metric, f" for {tenant}", *path)


def _no_worse(numbers: EvaluationNumbers, gate: GateConfig, metric: str, where: str, *path: str) -> Iterator[str]:
    if (low := numbers(*path)) <= -gate.margin:
        yield (
            f"{OTHER_GATED_METRICS[metric]}{where} may be worse than the teacher's by {-100 * low:.1f} points; "
            f"{100 * gate.margin:.1f} points are allowed."
        )


def _no_kind_worse(numbers: EvaluationNumbers, candidate: str, gate: GateConfig) -> Iterator[str]:
    if not (numbers.has("kinds") or numbers.has("settings", "gate", "kind_margin")):
        return  # judged before kinds were measured
    for kind, p in shown_losses(numbers, gate).items():
        gap, low, high, queries = _kind_gap(numbers, kind)
        yield (
            f"Worse than the teacher in questions of the kind “{kind}”: {gap:+.1f} points "
            f"[{low:+.1f}, {high:+.1f}], {queries:.0f} queries; a loss beyond "
            f"{100 * gate.kind_margin:.1f} points is shown (p {p:.4f})."
        )


def _kind_gap(numbers: EvaluationNumbers, kind: str) -> tuple[float, float, float, float]:
    """Candidate minus teacher in a kind of question: points, its interval, and the number of queries."""
    at = ("kinds", kind, "difference")
    gap, low, high = (100 * numbers(*at, name) for name in ("difference", "low", "high"))
    return gap, low, high, numbers(*at, "n")


def shown_losses(numbers: EvaluationNumbers, gate: GateConfig) -> dict[str, float]:
    """The kinds of question with a loss beyond the margin, and its p: small after Holm's correction, and the whole
    interval is beyond the margin, so that what is said agrees with the interval beside it."""
    ps = loss_ps(numbers, gate)
    return {
        kind: p
        for kind, p in ps.items()
        if p < gate.p and numbers("kinds", kind, "difference", "high") < -gate.kind_margin
    }


def loss_ps(numbers: EvaluationNumbers, gate: GateConfig) -> dict[str, float]:
    """The p of a loss beyond the margin in each kind of question, by Holm's correction over all of them."""
    from qinglan.evaluation.statistics import holm

    kinds = numbers.value("kinds")
    if not isinstance(kinds, Mapping) or not kinds:
        raise MissingNumberError("kinds is empty")
    return holm({kind: _loss_p(numbers, kind, gate.kind_margin) for kind in kinds})


def _loss_p(numbers: EvaluationNumbers, kind: str, margin: float) -> float:
    paths = [("kinds", kind, "difference", name) for name in ("difference", "low", "high")]
    if any(numbers.value(*path) is None for path in paths):  # too few questions to compare
        return math.nan
    difference, low, high = (numbers(*path) for path in paths)
    return loss_p(difference, low, high, margin)


def loss_p(difference: float, low: float, high: float, margin: float) -> float:
    """One-sided p of a loss beyond the margin, by the normal law. Its deviation comes from the interval's upper part,
    which faces the margin: that of few questions is far from symmetric, and its width alone would show losses that
    the interval does not."""
    if high <= difference:
        return float(difference >= -margin)
    return NormalDist(0, (high - difference) / UPPER_DEVIATIONS).cdf(difference + margin)


def _length(numbers: EvaluationNumbers, candidate: str, gate: GateConfig) -> Iterator[str]:
    length, limit = (numbers("systems", name, "length", "value") for name in (candidate, "teacher"))
    if length > gate.length_ratio * limit:
        yield f"Rewrites have {length:.1f} characters, the teacher's {limit:.1f}: over {gate.length_ratio:g} times."


def _shares(numbers: EvaluationNumbers, candidate: str, gate: GateConfig) -> Iterator[str]:
    limits = {
        "copied": (gate.copied, "copy the history or a passage"),
        "invented": (gate.invented, "hold a number that nobody mentioned"),
        "zero_hit": (numbers("systems", "teacher", "zero_hit", "value") + gate.zero_hit, "find nothing"),
    }
    for metric, (limit, words) in limits.items():
        if (share := numbers("systems", candidate, metric, "value")) > limit:
            yield f"{share:.1%} of the rewrites {words}; {limit:.1%} are allowed."


def _cost(numbers: EvaluationNumbers, candidate: str, gate: GateConfig) -> Iterator[str]:
    cost, teacher = (numbers("systems", name, "cost", "value") for name in (candidate, "teacher"))
    if cost > gate.cost_ratio * teacher:
        yield f"1,000 rewrites cost {cost:.4g} against the teacher's {teacher:.4g}: over {gate.cost_ratio:g} times."


def _check_leaks(numbers: EvaluationNumbers, candidate: str, gate: GateConfig) -> Iterator[str]:
    yield from leak_reasons(numbers, _required_names(LEARNED_FROM, candidate), gate.alike)


def _another_judge(numbers: EvaluationNumbers, candidate: str, gate: GateConfig) -> Iterator[str]:
    if not numbers("counts", "examined") and not _judged_rows(numbers):
        return
    names = {role: numbers.value("agreement", role) for role in ("examiner", "judge")}
    if unknown := [role for role, name in names.items() if plain_model_name(name) in ("", "unknown")]:
        yield f"Nobody knows which model was the {' and the '.join(unknown)}: its scores may be no second opinion."
    elif same_model(names["examiner"], names["judge"]):
        yield (
            f"The examiner, {names['examiner']}, is the training's judge, {names['judge']}: its scores are no second "
            "opinion. "
            "Set another model as examiner."
        )


def _check_digests(numbers: EvaluationNumbers, candidate: str, gate: GateConfig) -> Iterator[str]:
    yield from missing_digests(numbers, ("digests", "predictions"))
    yield from _check_origins(numbers, candidate, "digests")
    if numbers.cross_fitted:
        folds = numbers.value("digests", "folds")
        if not isinstance(folds, Mapping) or len(folds) != numbers("cross_fitted", "folds"):
            yield "digests.folds does not name every fold: nobody can tell what each row was rewritten by."
        for fold in folds if isinstance(folds, Mapping) else ():
            yield from missing_digests(numbers, ("digests", "folds", fold, "test"))
            yield from _check_origins(numbers, candidate, "digests", "folds", fold)
    else:
        yield from missing_digests(numbers, ("digests", "test"))
    yield from _check_knowledge_bases(numbers.value("digests", "knowledge_bases"))


def _check_origins(numbers: EvaluationNumbers, candidate: str, *at: str) -> Iterator[str]:
    """Models are named, with what they learned from and were made from; RL is from the SFT model beside it."""
    names = tuple(dict.fromkeys(("sft", candidate)))
    models = [(*at, "models", name) for name in names]
    learned = [(*at, "training", part) for part in _required_names(LEARNED_FROM, candidate)]
    parents = [(*at, "parents", name, parent) for name in names for parent in _required_names(PARENTS, name)]
    yield from missing_digests(numbers, *models, *learned, *parents)
    before = (*at, "parents", "rl", "sft_model")
    if candidate == "rl" and numbers.value(*before) != numbers.value(*at, "models", "sft"):
        yield "RL was trained from another SFT model than the one beside it."


def _check_knowledge_bases(bases: Any) -> Iterator[str]:
    if not (isinstance(bases, list) and bases and all(isinstance(base, str) and base for base in bases)):
        yield "digests.knowledge_bases names none: the RAG service must say what it answered from (snapshot)."


def _required_names(expected: Mapping[str, tuple[str, ...]], candidate: str) -> tuple[str, ...]:
    if candidate not in expected:
        raise MissingNumberError(f"{candidate!r} is no candidate that this gate knows")
    return expected[candidate]


CHECKS: tuple[Check, ...] = (
    _check_query_count,
    _check_who_judged,
    _better_than_teacher,
    _better_than_plain,
    _no_worse_elsewhere,
    _no_kind_worse,
    _length,
    _shares,
    _cost,
    _check_leaks,
    _another_judge,
    _check_digests,
)


def _praise(numbers: EvaluationNumbers, candidate: str, gate: GateConfig) -> Iterator[str]:
    """The gain; then what is surely below the teacher's though the gate does not ask for it, so that all see it."""
    yield _against_teacher(numbers, candidate).summary(numbers)
    if judged := _judged_rows(numbers):
        examiner = numbers.value("agreement", "examiner")
        yield f"Yet this is judged, not gold: {examiner} judged {judged:.0f} of the test's rows, and no person did."
    pair = numbers.value("paired", f"{candidate}_vs_teacher")
    for metric, words in UNGATED_METRICS.items():
        gap = pair.get(metric) or {}
        low, high = gap.get("low"), gap.get("high")
        if isinstance(low, float) and isinstance(high, float) and high < 0:
            yield f"Yet {words} is below the teacher's: {gap['difference']:+.2f} [{low:+.2f}, {high:+.2f}]."
    yield from _lost_kinds(numbers, gate)


def _lost_kinds(numbers: EvaluationNumbers, gate: GateConfig) -> Iterator[str]:
    """Kinds of question that surely lose, though not surely by more than the gate's margin."""
    for kind in numbers.value("kinds") if numbers.has("kinds") else ():  # none before kinds were measured
        if numbers.value("kinds", kind, "difference", "high") is None:  # too few questions to compare
            continue
        gap, low, high, queries = _kind_gap(numbers, kind)
        if high >= 0:
            continue
        yield (
            f"Yet it is below the teacher in questions of the kind “{kind}”: {gap:+.1f} points "
            f"[{low:+.1f}, {high:+.1f}], {queries:.0f} queries; a loss beyond "
            f"{100 * gate.kind_margin:.1f} points is not shown."
        )


def _power(numbers: EvaluationNumbers) -> str:
    """A sentence with the number of queries it would take; empty where that was not worked out."""
    try:
        needed, size = numbers("power", "interesting", "queries"), numbers("power", "interesting", "difference")
    except MissingNumberError:
        return ""
    return f" To show {100 * size:+.1f} points takes about {needed:,.0f} queries like these."
