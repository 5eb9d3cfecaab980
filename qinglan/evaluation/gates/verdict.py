"""The gate of both lines: each condition reads the evaluation by path and gives reasons to hold; no reason promotes.

verdict = decide_line(evaluation, Line(CONDITIONS, praise, before, after), gate, limits)

A number that is missing, null, infinite, impossible (a cost of -5) or not a number is a reason to hold.
"""

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import orjson

from qinglan.config import Config
from qinglan.evaluation.gates.gate_limits import limit_faults
from qinglan.pages.markdown import markdown_text

DIGEST = re.compile("[0-9a-f]{64}")

SHARE, DIFFERENCE, AMOUNT = (0.0, 1.0), (-1.0, 1.0), (0.0, math.inf)
RANGES = {
    **dict.fromkeys(("difference", "low", "high"), DIFFERENCE),
    **dict.fromkeys(("copied", "invented", "zero_hit", "first_judged", "threshold"), SHARE),
    **dict.fromkeys(("f1", "macro_f1", "ece"), SHARE),
    **dict.fromkeys(("length", "cost"), AMOUNT),
    **dict.fromkeys(("n", "rows", "judged", "examined", "same", "alike", "folds", "support", "queries"), AMOUNT),
    "count": (1.0, math.inf),
    "p": (math.nextafter(0, 1), 1.0),
}
"""Lowest and highest possible value of each number that a gate reads, by the last name of its path; before `value`,
by the name before that. A permutation test's p is never 0: see statistics.py."""


class Verdict(NamedTuple):
    promote: bool
    word: Literal["promote", "hold"]
    reasons: list[str]
    """Reasons to hold, or figures that speak for the model."""


class MissingNumberError(Exception):
    """A number that the verdict needs is missing."""


class UnmeasuredError(MissingNumberError):
    """A number that the evaluation could not measure: it is null."""

    def __init__(self, path: tuple[str, ...]) -> None:
        super().__init__(figure_in_words(path))
        self.compared = path[0] == "paired"
        """The number compares two systems, for which few rows may not suffice."""


class TooFew(str):
    """A reason to hold that names a number of rows: comparisons without a number follow from it."""

    __slots__ = ()


class Description(str):
    """A sentence about how the model was tested: no reason to hold."""

    __slots__ = ()


class LimitReason(str):
    """A reason to hold that names a setting laxer than its limit."""

    __slots__ = ()


ENDS = {
    "low": "the interval's lower end",
    "high": "the interval's upper end",
    "p": "the p-value",
    "difference": "the difference",
    "n": "the number of rows",
}
"""Words for the numbers of a comparison, by the last name of their path."""


def figure_in_words(path: Sequence[str]) -> str:
    """A sentence without its full stop that names the figure that is null."""
    match path:
        case ["paired", pair, *part, end] if "_vs_" in pair and end in ENDS:
            first, _, second = pair.partition("_vs_")
            if measure := ", ".join(name for name in part if name != "tenants"):
                return f"{first} against {second}, {measure}: {ENDS[end]} could not be measured"
            return f"{first} against {second}: {ENDS[end]} could not be measured"
        case ["systems", system, metric, "value"]:
            return f"The value of {metric} of {system} could not be measured"
    return f"{'.'.join(path)} could not be measured"


class EvaluationNumbers:
    """An evaluation, read by path; anything but a finite number is missing."""

    def __init__(self, evaluation: Mapping[str, Any]) -> None:
        self._evaluation = evaluation

    def value(self, *path: str) -> Any:
        value: Any = self._evaluation
        for name in path:
            if not isinstance(value, Mapping) or name not in value:
                raise MissingNumberError(f"{'.'.join(path)} is not in the evaluation")
            value = value[name]
        return value

    def has(self, *path: str) -> bool:
        try:
            self.value(*path)
        except MissingNumberError:
            return False
        return True

    @property
    def candidate(self) -> str:
        """The evaluation's name for the judged rewriter."""
        return str(self._evaluation.get("candidate", "rl"))

    @property
    def cross_fitted(self) -> bool:
        """True if no test was locked away; a MissingNumberError if the number of folds is missing or below 2."""
        if not self.has("cross_fitted"):
            return False
        if (folds := self("cross_fitted", "folds")) < 2:
            raise MissingNumberError(f"cross_fitted.folds is {folds:.0f}; at least 2 are needed. Run evaluate again")
        return True

    def __call__(self, *path: str) -> float:
        value = self.value(*path)
        if value is None:
            raise UnmeasuredError(path)
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            raise MissingNumberError(f"{'.'.join(path)} is {value!r}, which is no number")
        low, high = RANGES[path[-2] if path[-1] == "value" else path[-1]]
        if not low <= value <= high:
            raise MissingNumberError(f"{'.'.join(path)} is {value!r}, which is impossible")
        return float(value)


Check = Callable[[EvaluationNumbers, Any], Iterator[str]]
"""Reads the numbers and the gate's settings; yields sentences."""


class Line(NamedTuple):
    """One line's gate."""

    conditions: Sequence[Check]
    """Each yields reasons to hold."""

    praise: Check
    """Figures that speak for a promoted model."""

    before: Check
    """Sentences before the reasons of any verdict."""

    after: Check
    """Sentences after the reasons of any verdict."""

    evaluated: Sequence[str] = ("draws",)
    """Settings of the evaluation that have limits, beside those of the gate."""


def decide_line(evaluation: Mapping[str, Any], line: Line, gate: Config, limits: Config) -> Verdict:
    """The verdict: hold with every reason of every condition, or promote with the figures of `praise`."""
    numbers = EvaluationNumbers(evaluation)
    reasons = list(_limit_reasons(numbers, gate, limits, line.evaluated))
    for condition in line.conditions:
        reasons += _collect(condition(numbers, gate), reasons)
    promote = not reasons
    if promote:
        try:
            reasons = list(line.praise(numbers, gate))
        except MissingNumberError as missing:
            promote, reasons = False, [f"{missing}."]
    before, after = (
        map(Description, _collect(describe(numbers, gate), reasons)) for describe in (line.before, line.after)
    )
    # Several conditions may lack the same number: each sentence is given once.
    return Verdict(promote, "promote" if promote else "hold", list(dict.fromkeys([*before, *reasons, *after])))


def _limit_reasons(
    numbers: EvaluationNumbers, gate: Config, limits: Config, evaluated: Sequence[str]
) -> Iterator[str]:
    """A reason for each setting of the gate or of the evaluation that is laxer than its limit."""
    recorded = {name: numbers.value("settings", name) for name in evaluated if numbers.has("settings", name)}
    for fault in limit_faults({**recorded, "gate": gate.model_dump()}, limits):
        yield LimitReason(f"Beyond the limits on every gate: {fault}.")


def _collect(check: Iterator[str], earlier: Iterable[str]) -> list[str]:
    """The sentences of a check; a missing number is one, unless an earlier reason, too few rows, explains it."""
    sentences: list[str] = []
    try:
        sentences.extend(check)
    except MissingNumberError as missing:
        too_few = any(isinstance(reason, TooFew) for reason in earlier)
        if not (too_few and isinstance(missing, UnmeasuredError) and missing.compared):
            sentences.append(f"{missing}.")
    return sentences


def held_for(verdict: Verdict, faults: Sequence[str]) -> Verdict:
    """The verdict, held for these reasons too."""
    if not faults:
        return verdict
    rest = [reason for reason in verdict.reasons if not verdict.promote or isinstance(reason, Description)]
    return Verdict(False, "hold", [*faults, *rest])


class Comparison(NamedTuple):
    """The paired difference that decides: its place in the evaluation, and its words in sentences."""

    path: tuple[str, ...]
    title: str
    """Such as RL minus teacher, gold passage first."""

    against: str
    """Such as the teacher."""

    rows: tuple[str, ...]
    """The place of the number of rows compared."""

    unit: str
    """Their name."""

    def summary(self, numbers: EvaluationNumbers) -> str:
        """The difference with its interval and p, in a sentence."""
        difference, low, high, p = (numbers(*self.path, name) for name in ("difference", "low", "high", "p"))
        return (
            f"{self.title}: {100 * difference:+.1f} points [{100 * low:+.1f}, {100 * high:+.1f}], p {p:.4f}, "
            f"{numbers(*self.rows):.0f} {self.unit}."
        )

    def not_better(self, numbers: EvaluationNumbers, limit: float, hint: str = "") -> Iterator[str]:
        """A reason unless the difference and its whole interval are above zero and p is below the limit."""
        low, high, p, difference = (numbers(*self.path, name) for name in ("low", "high", "p", "difference"))
        if low > high:
            yield f"{self.title}: the interval [{100 * low:+.1f}, {100 * high:+.1f}] is impossible."
        elif high < 0:
            yield f"Worse than {self.against}. {self.summary(numbers)}"
        elif low <= 0 or p >= limit or difference <= 0:
            yield f"Better than {self.against}: not shown. {self.summary(numbers)}{hint}"


def level_of(p: float, numbers: EvaluationNumbers) -> float:
    """The level that p must be below: Bonferroni's, over all models that the test has judged."""
    return p / max(1.0, _judged_models(numbers))


def describe_uses(numbers: EvaluationNumbers, gate: Any) -> Iterator[str]:
    """The number of models that the test has judged, and the level that follows."""
    if count := _judged_models(numbers):
        needed = f"{gate.p:g} / {count:.0f} = {level_of(gate.p, numbers):.4g}"
        yield f"Models that this locked test has judged: {count:.0f}; p must be below {needed}."


def _judged_models(numbers: EvaluationNumbers) -> float:
    """Models of its line that the test has judged; 0 of an evaluation from before they were counted, or of a run
    without a store."""
    counted = numbers.has("test_uses") and numbers.value("test_uses") is not None
    return numbers("test_uses", "count") if counted else 0.0


def missing_digests(numbers: EvaluationNumbers, *paths: Sequence[str]) -> Iterator[str]:
    """A reason for each digest that is missing: without its name an input cannot be audited."""
    for path in paths:
        try:
            digest = numbers.value(*path)
        except MissingNumberError as missing:
            yield f"{missing}."
            continue
        if not (isinstance(digest, str) and DIGEST.fullmatch(digest)):
            yield f"{'.'.join(path)} is {digest!r}, which is no SHA-256 digest."


def verdict_bytes(verdict: Verdict) -> bytes:
    """The verdict as the lineage keeps it: its digest is in the gate's statement, and in that of a release."""
    return orjson.dumps({"word": verdict.word, "reasons": verdict.reasons}, option=orjson.OPT_SORT_KEYS)


def to_markdown(verdict: Verdict) -> str:
    """The verdict for a person: the word, and each reason."""
    return "\n".join(
        [f"**{verdict.word.capitalize()}**", "", *(f"- {markdown_text(reason)}" for reason in verdict.reasons), ""]
    )
