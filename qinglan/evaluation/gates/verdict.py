"""Gate of both model lines. Each condition reads numbers of the evaluation and yields reasons to hold. A model
without such reasons is promoted.

verdict = decide_line(evaluation, Line(CONDITIONS, praise, before, after), gate, limits)

A missing, null, infinite, impossible (a cost of -5) or malformed number is a reason to hold.
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
"""Lowest and highest possible value of each number that a gate reads, by the last name of the number's path. If the
last name is `value`, the name before it counts. A permutation test's p is never 0 (see statistics.py)."""


class Verdict(NamedTuple):
    promote: bool
    word: Literal["promote", "hold"]
    reasons: list[str]
    """Reasons to hold, or figures that speak for the model."""


class MissingNumberError(Exception):
    """Raised if a number that the verdict needs is missing or malformed."""


class UnmeasuredError(MissingNumberError):
    """Raised if a number is null, because the evaluation could not measure it."""

    def __init__(self, path: tuple[str, ...]) -> None:
        super().__init__(figure_in_words(path))
        self.compared = path[0] == "paired"
        """True if the number compares two systems, which too few rows can make impossible."""


class TooFew(str):
    """Reason to hold because there are too few rows. If comparisons could not be measured for this reason, they are
    not reported as well."""


class Description(str):
    """Sentence about how the model was tested, which is not a reason to hold."""


class LimitReason(str):
    """Reason to hold that names a setting laxer than its limit."""


ENDS = {
    "low": "the interval's lower end",
    "high": "the interval's upper end",
    "p": "the p-value",
    "difference": "the difference",
    "n": "the number of rows",
}
"""Words for the numbers of a comparison, by the last name of their path."""


def figure_in_words(path: Sequence[str]) -> str:
    """Return a sentence, without a full stop, which says that the figure at a path could not be measured."""
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
    """Evaluation whose values are read by path. A call returns a finite number in its possible range, or raises a
    MissingNumberError."""

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
        """Return the name under which the evaluation holds the figures of the evaluated rewriter."""
        return str(self._evaluation.get("candidate", "rl"))

    @property
    def cross_fitted(self) -> bool:
        """Return True if the evaluation is cross-fitted and has no locked test; raises a MissingNumberError if the
        number of folds is missing or below 2."""
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
"""Function that takes an evaluation's numbers and the gate's settings, and yields sentences."""


class Line(NamedTuple):
    """Checks that make up the gate of one model line."""

    conditions: Sequence[Check]
    """Checks that yield reasons to hold."""

    praise: Check
    """Check that yields figures in favour of a model without reasons to hold."""

    before: Check
    """Check that yields sentences to put before the reasons of any verdict."""

    after: Check
    """Check that yields sentences to put after the reasons of any verdict."""

    evaluated: Sequence[str] = ("draws",)
    """Settings of the evaluation that have limits, in addition to the gate's settings."""


def decide_line(evaluation: Mapping[str, Any], line: Line, gate: Config, limits: Config) -> Verdict:
    """Return the verdict: hold with all reasons of all conditions, or promote with the figures of `praise`."""
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
    """Yield a reason for each setting of the gate or of the evaluation that is laxer than its limit."""
    recorded = {name: numbers.value("settings", name) for name in evaluated if numbers.has("settings", name)}
    for fault in limit_faults({**recorded, "gate": gate.model_dump()}, limits):
        yield LimitReason(f"Beyond the limits on every gate: {fault}.")


def _collect(check: Iterator[str], earlier: Iterable[str]) -> list[str]:
    """Return the sentences of a check. A missing number becomes a sentence too, unless an earlier reason says that
    there are too few rows to measure it."""
    sentences: list[str] = []
    try:
        sentences.extend(check)
    except MissingNumberError as missing:
        too_few = any(isinstance(reason, TooFew) for reason in earlier)
        if not (too_few and isinstance(missing, UnmeasuredError) and missing.compared):
            sentences.append(f"{missing}.")
    return sentences


def held_for(verdict: Verdict, faults: Sequence[str]) -> Verdict:
    """Return the verdict changed to hold, with the faults as reasons; without faults it is returned unchanged."""
    if not faults:
        return verdict
    rest = [reason for reason in verdict.reasons if not verdict.promote or isinstance(reason, Description)]
    return Verdict(False, "hold", [*faults, *rest])


class Comparison(NamedTuple):
    """Paired difference that decides about a model: its path in the evaluation, and words for sentences about it."""

    path: tuple[str, ...]
    title: str
    """Name of the difference, such as `RL minus teacher, gold passage first`."""

    against: str
    """Name of the other system, such as `the teacher`."""

    rows: tuple[str, ...]
    """Path of the number of compared rows in the evaluation."""

    unit: str
    """Name of the compared rows, such as `queries`."""

    def summary(self, numbers: EvaluationNumbers) -> str:
        difference, low, high, p = (numbers(*self.path, name) for name in ("difference", "low", "high", "p"))
        return (
            f"{self.title}: {100 * difference:+.1f} points [{100 * low:+.1f}, {100 * high:+.1f}], p {p:.4f}, "
            f"{numbers(*self.rows):.0f} {self.unit}."
        )

    def not_better(self, numbers: EvaluationNumbers, limit: float, hint: str = "") -> Iterator[str]:
        """Yield a reason to hold, unless difference and whole interval are above zero and p is below the limit."""
        low, high, p, difference = (numbers(*self.path, name) for name in ("low", "high", "p", "difference"))
        if low > high:
            yield f"{self.title}: the interval [{100 * low:+.1f}, {100 * high:+.1f}] is impossible."
        elif high < 0:
            yield f"Worse than {self.against}. {self.summary(numbers)}"
        elif low <= 0 or p >= limit or difference <= 0:
            yield f"Better than {self.against}: not shown. {self.summary(numbers)}{hint}"


def level_of(p: float, numbers: EvaluationNumbers) -> float:
    """Return the level below which a test's p must be: `p` divided by the number of models that the locked test has
    judged (Bonferroni's correction)."""
    return p / max(1.0, _judged_models(numbers))


def describe_uses(numbers: EvaluationNumbers, gate: Any) -> Iterator[str]:
    """Yield a sentence that says how many models the locked test has judged, and below which level p must therefore
    be."""
    if count := _judged_models(numbers):
        needed = f"{gate.p:g} / {count:.0f} = {level_of(gate.p, numbers):.4g}"
        yield f"Models that this locked test has judged: {count:.0f}; p must be below {needed}."


def _judged_models(numbers: EvaluationNumbers) -> float:
    """Return the number of models that the test has judged; 0 if the evaluation has no count, because its run had no
    store or is older than the count."""
    counted = numbers.has("test_uses") and numbers.value("test_uses") is not None
    return numbers("test_uses", "count") if counted else 0.0


def missing_digests(numbers: EvaluationNumbers, *paths: Sequence[str]) -> Iterator[str]:
    """Yield a reason to hold for each missing digest, because an input without a digest cannot be audited."""
    for path in paths:
        try:
            digest = numbers.value(*path)
        except MissingNumberError as missing:
            yield f"{missing}."
            continue
        if not (isinstance(digest, str) and DIGEST.fullmatch(digest)):
            yield f"{'.'.join(path)} is {digest!r}, which is no SHA-256 digest."


def verdict_bytes(verdict: Verdict) -> bytes:
    """Serialise the verdict to the bytes that the lineage holds, and whose digest the signed statements name."""
    return orjson.dumps({"word": verdict.word, "reasons": verdict.reasons}, option=orjson.OPT_SORT_KEYS)


def to_markdown(verdict: Verdict) -> str:
    return "\n".join(
        [f"**{verdict.word.capitalize()}**", "", *(f"- {markdown_text(reason)}" for reason in verdict.reasons), ""]
    )
