"""Promote or hold: a pure function of evaluation.json and thresholds, with its reasons in words.

The candidate must find the gold passage first more often than the teacher, surely; be no worse elsewhere; and stay
within what it may cost, copy, invent and write. The test must be one that no model learned from, the examiner another
than the training's judge, and everything it was made from named. What is missing or not a number holds it.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from components.evaluation.rewriter.config import GateConfig
from qinglan.leaks import leak_reasons
from qinglan.verdict import EvaluationNumbers, MissingNumberError, Verdict, collect_reasons, missing_digests

PARENTS = {"sft": ("base_model", "train", "dev"), "rl": ("base_model", "sft_model", "train", "dev")}
"""What a model's card names; a candidate's includes those of the models before it."""

LEARNED_FROM = {"sft": ("sft",), "rl": ("sft", "ppo")}
"""The rows behind a candidate, by the stage that reads them."""

OTHER_GATED_METRICS = {"ndcg": "nDCG@10", "recall": "recall@10"}
UNGATED_METRICS = {
    "quality": "quality by the examiner (1 to 5)",
    "judged_top1": "the first passage's score against the need",
}


Check = Callable[[EvaluationNumbers, str, GateConfig], Iterator[str]]


def decide(evaluation: Mapping[str, Any], gate: GateConfig) -> Verdict:
    """The verdict on evaluation's candidate; any doubt holds it."""
    numbers = EvaluationNumbers(evaluation)
    candidate = str(evaluation.get("candidate", "rl"))
    reasons = [reason for check in CHECKS for reason in collect_reasons(check(numbers, candidate, gate))]
    if reasons:
        return Verdict(False, "hold", reasons)
    return Verdict(True, "promote", [_difference_summary(numbers, candidate), *_regressions(evaluation, candidate)])


def _check_query_count(numbers: EvaluationNumbers, candidate: str, gate: GateConfig) -> Iterator[str]:
    if (n := numbers("paired", f"{candidate}_vs_teacher", "n")) < gate.rows:
        yield f"Too few: {n:.0f} queries with gold passages were compared, and {gate.rows} are wanted."


def _better_than_teacher(numbers: EvaluationNumbers, candidate: str, gate: GateConfig) -> Iterator[str]:
    low, high, p = (numbers("paired", f"{candidate}_vs_teacher", name) for name in ("low", "high", "p"))
    if high < 0:
        yield f"Worse than the teacher. {_difference_summary(numbers, candidate)}"
    elif low <= 0 or p >= gate.p:
        yield f"Better than the teacher: not shown. {_difference_summary(numbers, candidate)}{_power(numbers)}"


def _better_than_plain(numbers: EvaluationNumbers, candidate: str, gate: GateConfig) -> Iterator[str]:
    if (low := numbers("paired", f"{candidate}_vs_plain", "low")) <= 0:
        yield f"Better than no rewrite: not shown; the interval of top-1 reaches down to {_points(low)}."


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
            f"{OTHER_GATED_METRICS[metric]}{where} may be worse than the teacher's by {_points(-low, sign=False)}; "
            f"{_points(gate.margin, sign=False)} are allowed."
        )


def _length(numbers: EvaluationNumbers, candidate: str, gate: GateConfig) -> Iterator[str]:
    own, theirs = (numbers("systems", name, "length", "value") for name in (candidate, "teacher"))
    if own > gate.length_ratio * theirs:
        yield f"Rewrites have {own:.1f} characters, the teacher's {theirs:.1f}: over {gate.length_ratio:g} times."


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
    own, theirs = (numbers("systems", name, "cost", "value") for name in (candidate, "teacher"))
    if own > gate.cost_ratio * theirs:
        yield f"1,000 rewrites cost {own:.4g} against the teacher's {theirs:.4g}: over {gate.cost_ratio:g} times."


def _check_leaks(numbers: EvaluationNumbers, candidate: str, gate: GateConfig) -> Iterator[str]:
    yield from leak_reasons(numbers, _required_names(LEARNED_FROM, candidate), gate.alike)


def _another_judge(numbers: EvaluationNumbers, candidate: str, gate: GateConfig) -> Iterator[str]:
    if not numbers("counts", "examined"):
        return
    names = {role: numbers.value("agreement", role) for role in ("examiner", "judge")}
    if unknown := [role for role, name in names.items() if _model(name) in ("", "unknown")]:
        yield f"Nobody knows which model was the {' and the '.join(unknown)}: its scores may be no second opinion."
    elif same_model(names["examiner"], names["judge"]):
        yield (
            f"The examiner is the training's judge, {names['judge']}: its scores are no second opinion. "
            "Set another model as examiner."
        )


def same_model(name: Any, other: Any) -> bool:
    """Whether two names mean one model."""
    return _model(name) == _model(other)


def _model(name: Any) -> str:
    return name.strip().casefold() if isinstance(name, str) else ""


def _check_digests(numbers: EvaluationNumbers, candidate: str, gate: GateConfig) -> Iterator[str]:
    models = tuple(dict.fromkeys(("sft", candidate)))
    own = [("digests", name) for name in ("test", "predictions")]
    made = [("digests", "models", name) for name in models]
    learned = [("digests", "training", part) for part in _required_names(LEARNED_FROM, candidate)]
    parents = [("digests", "parents", name, parent) for name in models for parent in _required_names(PARENTS, name)]
    yield from missing_digests(numbers, *own, *made, *learned, *parents)
    yield from _check_knowledge_bases(numbers.value("digests", "knowledge_bases"))
    before = ("digests", "parents", "rl", "sft_model")
    if candidate == "rl" and numbers.value(*before) != numbers.value("digests", "models", "sft"):
        yield "RL was trained from another SFT model than the one beside it."


def _check_knowledge_bases(bases: Any) -> Iterator[str]:
    if not (isinstance(bases, list) and bases and all(isinstance(one, str) and one for one in bases)):
        yield "digests.knowledge_bases names none: the RAG service must say what it answered from (snapshot)."


def _required_names(expected: Mapping[str, tuple[str, ...]], candidate: str) -> tuple[str, ...]:
    if candidate not in expected:
        raise MissingNumberError(f"{candidate!r} is no candidate that this gate knows")
    return expected[candidate]


CHECKS: tuple[Check, ...] = (
    _check_query_count,
    _better_than_teacher,
    _better_than_plain,
    _no_worse_elsewhere,
    _length,
    _shares,
    _cost,
    _check_leaks,
    _another_judge,
    _check_digests,
)


def _difference_summary(numbers: EvaluationNumbers, candidate: str) -> str:
    pair = f"{candidate}_vs_teacher"
    difference, low, high, p, n = (numbers("paired", pair, x) for x in ("difference", "low", "high", "p", "n"))
    return (
        f"{candidate.upper()} minus teacher, gold passage first: {_points(difference)} "
        f"[{100 * low:+.1f}, {100 * high:+.1f}], p {p:.4f}, {n:.0f} queries."
    )


def _regressions(evaluation: Mapping[str, Any], candidate: str) -> Iterator[str]:
    """What is surely below the teacher's though the gate does not ask for it: said, so that nobody overlooks it."""
    for metric, words in UNGATED_METRICS.items():
        found = evaluation["paired"][f"{candidate}_vs_teacher"].get(metric) or {}
        low, high = found.get("low"), found.get("high")
        if isinstance(low, float) and isinstance(high, float) and high < 0:
            yield f"Yet {words} is below the teacher's: {found['difference']:+.2f} [{low:+.2f}, {high:+.2f}]."


def _power(numbers: EvaluationNumbers) -> str:
    """How many queries it would take, where that was worked out."""
    try:
        needed, size = numbers("power", "interesting", "queries"), numbers("power", "interesting", "difference")
    except MissingNumberError:
        return ""
    return f" To show {_points(size)} takes about {needed:,.0f} queries like these."


def _points(share: float, sign: bool = True) -> str:
    return f"{100 * share:+.1f} points" if sign else f"{100 * share:.1f} points"
