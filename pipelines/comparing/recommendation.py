"""Which teacher to take, in words: a pure function of levels, paired differences and prices."""

import math
import sys
from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

P = 0.05
MANY_FAILED = 0.02
"""Rows without a rewrite that are worth a sentence: each is one that no student learns from."""

TOO_MANY_FAILED = 0.2
"""Above it nobody is taken, at any price."""

FEWEST_CONVERSATIONS = 20
"""Of fewer, the bootstrap's intervals are too narrow to say anything by."""

RULE_OF_THREE = 3
"""Where none of n conversations differs, the interval has no width; yet up to 3 / n of all may, at 95 %."""

SPANS = {"points": 1.0, "of 5": 4.0}
"""By how much one row can differ at most, by unit."""

Conclusion = Literal["better", "as good", "not shown", "alone", "none"]


class TeacherScore(NamedTuple):
    """One teacher."""

    name: str
    value: float
    """The deciding metric's."""

    cost: float
    """Per 1,000 rewrites that it gave."""

    failed: float
    """Share of rows without a rewrite."""


class TeacherDifference(NamedTuple):
    """One teacher minus another in the deciding metric, on the same rows."""

    difference: float
    low: float
    high: float
    p: float
    """Corrected for the number of pairs."""

    needed: int | None
    """Rows that would show such a difference; None where there is none to show."""

    needed_for_margin: int | None
    """Rows that would show one as large as the margin."""

    rows: int
    """That both are known on."""

    conversations: int
    """Of these rows."""

    def fewest(self, margin: float, unit: str) -> int:
        """Conversations without which its interval says nothing."""
        if self.low < self.high:
            return FEWEST_CONVERSATIONS
        if not margin > 0:
            return sys.maxsize  # no number of them shows that there is no difference at all
        return max(FEWEST_CONVERSATIONS, math.ceil(round(RULE_OF_THREE * SPANS[unit] / margin, 6)))

    def turned(self) -> "TeacherDifference":
        return self._replace(difference=-self.difference, low=-self.high, high=-self.low)


class Recommendation(NamedTuple):
    word: Conclusion
    """better: everyone else is shown to be worse. as good: the cheapest of those within the margin. not shown: too
    few rows to say. alone: only one gave enough rewrites. none: nobody did."""

    take: str
    """Empty for none."""

    lines: list[str]


def recommend(
    standings: Sequence[TeacherScore],
    gaps: Mapping[tuple[str, str], TeacherDifference],
    margin: float,
    rows: int,
    unit: str,
) -> Recommendation:
    """`gaps` holds each pair once, in either order; `rows` are those on which the deciding metric is known."""
    able = [one for one in standings if can_teach(one)]
    if len(able) < 2:
        return _without_choice(able, failure_lines(standings))
    best = max(able, key=lambda one: (one.value, -one.cost))
    others = [one for one in able if one.name != best.name]
    above = {one.name: difference_between(gaps, best.name, one.name) for one in others}
    known = [one for one in others if missing_evidence(above[one.name], margin, unit) is None]
    within = [one for one in known if above[one.name].high < margin]
    worse = [one for one in known if shown_worse(above[one.name]) and one not in within]
    open_ = [one for one in others if one not in within and one not in worse]
    sure = min([best, *within], key=lambda one: one.cost)
    cheaper = [one for one in open_ if one.cost < sure.cost]
    lines = [describe_difference(best, one, above[one.name], margin, unit) for one in others]
    if not cheaper:
        word: Conclusion = "as good" if within else "not shown" if open_ else "better"
        return Recommendation(
            word, sure.name, [_taken(sure, best, word, margin, unit), *lines, *failure_lines(standings)]
        )
    hopeful = [one for one in cheaper if above[one.name].difference <= margin]
    take = min(hopeful, key=lambda one: one.cost) if hopeful else sure
    first = _not_shown(take, best, above, cheaper, margin, rows, unit)
    return Recommendation("not shown", take.name, [first, *lines, *failure_lines(standings)])


def _without_choice(able: Sequence[TeacherScore], failing: Sequence[str]) -> Recommendation:
    """Nothing is said of quality where there is nobody to compare with."""
    if not able:
        first = "Take none of them: no teacher gave a rewrite that can be judged for enough of the rows."
        return Recommendation("none", "", [first, *failing])
    first = f"Take {able[0].name}: it alone gave rewrites that can be judged for enough of the rows."
    return Recommendation("alone", able[0].name, [first, *failing])


def difference_between(gaps: Mapping[tuple[str, str], TeacherDifference], one: str, other: str) -> TeacherDifference:
    return gaps[one, other] if (one, other) in gaps else gaps[other, one].turned()


def can_teach(one: TeacherScore) -> bool:
    """Whether there is enough of it to judge; what is unknown is never the best, and nothing is not cheap."""
    return math.isfinite(one.value) and math.isfinite(one.cost) and one.failed <= TOO_MANY_FAILED


def missing_evidence(gap: TeacherDifference, margin: float, unit: str) -> str | None:
    """Why its interval says nothing yet, with the rows that would do; None where it may be believed."""
    fewest = gap.fewest(margin, unit)
    if gap.conversations >= fewest:
        return None
    if not gap.conversations:
        return "no row is known of both"
    said = f"{gap.conversations:,} conversations are too few to tell"
    if fewest == sys.maxsize:
        return said
    return f"{said}: {fewest:,} are needed, about {_as_rows(gap, fewest):,} rows like these"


def _as_rows(gap: TeacherDifference, conversations: int) -> int:
    return math.ceil(conversations * gap.rows / gap.conversations)


def shown_worse(gap: TeacherDifference) -> bool:
    """The whole interval and the corrected p say so; what is unknown says nothing."""
    return gap.low > 0 and gap.p < P


def describe_difference(
    best: TeacherScore, other: TeacherScore, gap: TeacherDifference, margin: float, unit: str
) -> str:
    """What is known of one teacher beside the best."""
    interval = f"{best.name} minus {other.name}: {format_amount(gap.difference, unit)} [{_ends(gap, unit)}]"
    tolerated = format_amount(margin, unit, sign=False)
    if lacks := missing_evidence(gap, margin, unit):
        said = f"no difference is shown; {lacks}"
    elif gap.high < margin and gap.low <= 0:
        said = f"{other.name} is as good: the two are less than {tolerated} apart"
    elif gap.high < margin:
        said = f"{other.name} is worse, yet by less than the {tolerated} that are tolerated"
    elif shown_worse(gap):
        said = f"{other.name} is shown to be worse"
    else:
        said = f"no difference is shown{_rows_needed(gap, margin, unit)}"
    return f"{interval}: {said}."


def _rows_needed(gap: TeacherDifference, margin: float, unit: str) -> str:
    parts = []
    if gap.needed:
        parts.append(f"about {gap.needed:,} rows would show one of this size")
    if gap.needed_for_margin:
        parts.append(f"{gap.needed_for_margin:,} one of {format_amount(margin, unit, sign=False)}")
    return f"; {', '.join(parts)}" if parts else ""


def _taken(sure: TeacherScore, best: TeacherScore, word: Conclusion, margin: float, unit: str) -> str:
    if word == "better":
        return f"Take {sure.name}: every other teacher is shown to be worse."
    if word == "not shown":
        return f"Take {sure.name}: the best that was seen, and what is not shown to be worse costs no less."
    if sure.name == best.name:
        return f"Take {sure.name}: none is shown to be better, and it is the cheapest of those as good."
    return (
        f"Take {sure.name}: it is at most {format_amount(margin, unit, sign=False)} worse than {best.name}, "
        f"and costs {cost_ratio(sure.cost, best.cost)} what {best.name} does."
    )


def _not_shown(
    take: TeacherScore,
    best: TeacherScore,
    above: Mapping[str, TeacherDifference],
    cheaper: Sequence[TeacherScore],
    margin: float,
    rows: int,
    unit: str,
) -> str:
    """Too few rows to choose between the best seen and what costs less."""
    first = f"No difference shown with {rows:,} rows"
    if take not in cheaper:
        names = " and ".join(one.name for one in cheaper)
        look = "looks" if len(cheaper) == 1 else "look"
        most = max(_until(above[one.name], margin, unit) for one in cheaper)
        until = f"Until about {most:,} rows have told" if most else "Until more rows have told"
        return (
            f"{first}, but {names} {look} worse by more than is tolerated, or is unknown. {until}, take {take.name}."
        )
    gap = above[take.name]
    costs = f"{take.name} costs {cost_ratio(take.cost, best.cost)} what {best.name} does"
    if lacks := missing_evidence(gap, margin, unit):
        return f"{first}; {lacks}. {costs}: take {take.name} for now."
    more = f"; {gap.needed:,} would be needed for the difference seen" if gap.needed else ""
    return (
        f"{first}{more}. {costs}: take {take.name}, unless up to {format_amount(gap.high, unit, sign=False)} "
        "matter more "
        "than the price; then ask that many rows first."
    )


def _until(gap: TeacherDifference, margin: float, unit: str) -> int:
    """Rows that would tell; 0 where nobody knows."""
    fewest = gap.fewest(margin, unit)
    least = _as_rows(gap, fewest) if gap.conversations and fewest < sys.maxsize else 0
    return max(gap.needed or 0, least)


def failure_lines(standings: Sequence[TeacherScore]) -> list[str]:
    lines = []
    for one in standings:
        if one.failed > MANY_FAILED:
            lines.append(
                f"{one.name} gave no rewrite for {one.failed:.1%} of the rows. They count here as the question "
                "itself; in training data they would be missing."
            )
        if one.failed > TOO_MANY_FAILED:
            lines.append(f"{one.name} is left out of the choice: more than {TOO_MANY_FAILED:.0%} are missing.")
        elif not can_teach(one):
            lines.append(f"{one.name} is left out of the choice: its quality or its cost is unknown.")
    return lines


def cost_ratio(cost: float, other: float) -> str:
    """One price as a part of another."""
    if not (math.isfinite(cost) and math.isfinite(other) and other > 0):
        return "an unknown part of"
    return f"{cost / other:.2g} times"


def format_amount(value: float, unit: str, sign: bool = True) -> str:
    """A difference: points of a share, else in the metric's own unit."""
    if not math.isfinite(value):
        return "an unknown amount"
    plus = "+" if sign else "-"
    number = f"{100 * value:{plus}z.1f}" if unit == "points" else f"{value:{plus}z.2f}"  # z: never -0.0
    return f"{number} {unit}"


def _ends(gap: TeacherDifference, unit: str) -> str:
    scale, places = (100, 1) if unit == "points" else (1, 2)
    return ", ".join(
        f"{scale * end:+z.{places}f}" if math.isfinite(end) else "unknown" for end in (gap.low, gap.high)
    )
