"""Recommend a teacher from the scores, paired differences and prices, and explain it in sentences; pure functions."""

import math
import sys
from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

P = 0.05
MANY_FAILED = 0.02
"""Share of rows without a rewrite above which the report says so: no student learns from such a row."""

TOO_MANY_FAILED = 0.2
"""Share of rows without a rewrite above which a teacher is not recommended, at any price."""

FEWEST_CONVERSATIONS = 20
"""Fewest conversations for a conclusion; with fewer, the bootstrap's intervals are too narrow."""

RULE_OF_THREE = 3
"""Numerator of the rule of three: if none of n conversations differs, up to 3 / n of all may, at 95 % confidence."""

SPANS = {"points": 1.0, "of 5": 4.0}
"""Largest possible difference on one row, by unit."""

Conclusion = Literal["better", "as good", "tie", "not shown", "alone", "none"]


class TeacherScore(NamedTuple):
    """A teacher's level of the deciding metric, its cost and its failures."""

    name: str
    value: float
    """Level of the deciding metric."""

    cost: float
    """Cost per 1,000 rewrites that it gave."""

    failed: float
    """Share of rows without a rewrite."""


class TeacherDifference(NamedTuple):
    """Difference of one teacher and another in the deciding metric, on the same rows."""

    difference: float
    low: float
    high: float
    p: float
    """P-value, corrected for the number of pairs."""

    needed: int | None
    """Rows needed to show a difference of this size; None if the difference is zero or unknown."""

    needed_for_margin: int | None
    """Rows needed to show a difference as large as the margin."""

    rows: int
    """Rows on which the metric is known for both."""

    conversations: int
    """Conversations of these rows."""

    @property
    def tie(self) -> bool:
        """True if the two differ on no row that is known of both."""
        return bool(self.rows) and self.difference == self.low == self.high == 0

    @property
    def shown_worse(self) -> bool:
        """True if both the interval and the corrected p show that the second is worse; False if they are unknown."""
        return self.low > 0 and self.p < P

    def turned(self) -> "TeacherDifference":
        return self._replace(difference=-self.difference, low=-self.high, high=-self.low)


Gaps = Mapping[str, TeacherDifference]
"""Differences of the best teacher and each other one, by the other one's name."""


class Recommendation(NamedTuple):
    word: Conclusion
    """better: every other teacher is shown to be worse. as good: the cheapest teacher within the margin. tie: the
    cheapest of teachers that differ on no row. not shown: too few rows for a conclusion. alone: only one teacher gave
    enough rewrites. none: no teacher did, or the plain question is better than every teacher."""

    take: str
    """Name of the recommended teacher; empty if `word` is none."""

    lines: list[str]


class Scale(NamedTuple):
    """Margin and unit of the deciding metric, by which differences are judged and formatted."""

    margin: float
    unit: str

    @property
    def tolerated(self) -> str:
        return self.amount(self.margin, sign=False)

    def amount(self, value: float, sign: bool = True) -> str:
        """Format a difference with its unit: percentage points for a share, else the metric's own unit."""
        return f"{self.number(value, sign)} {self.unit}" if math.isfinite(value) else "an unknown amount"

    def number(self, value: float, sign: bool = True) -> str:
        plus = "+" if sign else "-"
        # z: never -0.0
        return f"{100 * value:{plus}z.1f}" if self.unit == "points" else f"{value:{plus}z.2f}"

    def ends(self, gap: TeacherDifference) -> str:
        return ", ".join(self.number(end) if math.isfinite(end) else "unknown" for end in (gap.low, gap.high))

    def fewest(self, gap: TeacherDifference) -> int:
        """Number of conversations that the interval needs before it can be trusted."""
        if gap.low < gap.high:
            return FEWEST_CONVERSATIONS
        if not self.margin > 0:
            return sys.maxsize  # no number of them shows that there is no difference at all
        return max(FEWEST_CONVERSATIONS, math.ceil(round(RULE_OF_THREE * SPANS[self.unit] / self.margin, 6)))

    def rows_of_fewest(self, gap: TeacherDifference) -> int:
        """Estimate the rows that contain so many conversations; 0 if no estimate is possible."""
        fewest = self.fewest(gap)
        if not gap.conversations or fewest == sys.maxsize:
            return 0
        return math.ceil(fewest * gap.rows / gap.conversations)

    def unseen(self, gap: TeacherDifference) -> str:
        """The difference that a tie over so few conversations may hide; empty where it is within the margin."""
        if gap.conversations >= self.fewest(gap):
            return ""
        span = SPANS[self.unit]
        hidden = self.amount(min(span, RULE_OF_THREE * span / gap.conversations), sign=False)
        return f"so few conversations may hide up to {hidden}"

    def lacks(self, gap: TeacherDifference) -> str | None:
        """Explain why the interval cannot be trusted yet and how many rows are needed; None if it can be trusted."""
        if gap.conversations >= self.fewest(gap):
            return None
        if not gap.conversations:
            return "no row is known of both"
        reason = f"{gap.conversations:,} conversations are too few to tell"
        rows = self.rows_of_fewest(gap)
        return f"{reason}: {self.fewest(gap):,} are needed, about {rows:,} rows like these" if rows else reason


def recommend(
    scores: Sequence[TeacherScore],
    gaps: Mapping[tuple[str, str], TeacherDifference],
    margin: float,
    rows: int,
    unit: str,
) -> Recommendation:
    """Recommend a teacher. `gaps` has each pair once, in either order; `rows` counts rows with a known metric."""
    able = [score for score in scores if can_teach(score)]
    failures, scale = failure_lines(scores), Scale(margin, unit)
    if len(able) < 2:
        return _without_choice(able, failures)
    best = max(able, key=lambda score: (score.value, -score.cost))  # of equal ones the cheapest
    rest = [score for score in able if score.name != best.name]
    above = {
        score.name: gaps[best.name, score.name]
        if (best.name, score.name) in gaps
        else gaps[score.name, best.name].turned()
        for score in rest
    }
    described = [*(describe_difference(best, score, above[score.name], scale) for score in rest), *failures]
    if all(difference.tie for difference in above.values()):
        names = f"{', '.join(score.name for score in able[:-1])} and {able[-1].name}"
        cheapest = min(able, key=lambda score: score.cost)  # `best` may stand out by rows that another one lacks
        first = f"A tie: {names} come out alike on every row. Take {cheapest.name}: no other costs less."
        return Recommendation("tie", cheapest.name, [first, *described])
    comparable = [score for score in rest if scale.lacks(above[score.name]) is None]
    within = [score for score in comparable if above[score.name].high < margin]
    worse = [score for score in comparable if above[score.name].shown_worse and score not in within]
    unclear = [score for score in rest if score not in within and score not in worse]
    sure = min([best, *within], key=lambda score: score.cost)
    if not (cheaper := [score for score in unclear if score.cost < sure.cost]):
        word: Conclusion = "as good" if within else "not shown" if unclear else "better"
        return Recommendation(word, sure.name, [_taken(sure, best, word, scale), *described])
    hopeful = [score for score in cheaper if above[score.name].difference <= margin]
    take = min(hopeful, key=lambda score: score.cost) if hopeful else sure
    return Recommendation("not shown", take.name, [_not_shown(take, best, above, cheaper, rows, scale), *described])


def _without_choice(able: Sequence[TeacherScore], failures: Sequence[str]) -> Recommendation:
    """Recommend the only teacher that can be judged, or none, without a comparison of quality."""
    if not able:
        first = "Take none of them: no teacher gave a rewrite that can be judged for enough of the rows."
        return Recommendation("none", "", [first, *failures])
    first = f"Take {able[0].name}: it alone gave rewrites that can be judged for enough of the rows."
    return Recommendation("alone", able[0].name, [first, *failures])


def can_teach(score: TeacherScore) -> bool:
    """Tell whether the teacher can be recommended: quality and cost are known, and it failed on few rows."""
    return math.isfinite(score.value) and math.isfinite(score.cost) and score.failed <= TOO_MANY_FAILED


def describe_difference(best: TeacherScore, other: TeacherScore, gap: TeacherDifference, scale: Scale) -> str:
    """Describe the difference between the best teacher and another in a sentence."""
    if gap.tie:
        alike = f"a tie, they come out alike on all {gap.rows:,} rows"
        conclusion = "; ".join(filter(None, (alike, scale.unseen(gap))))
    elif lacks := scale.lacks(gap):
        conclusion = f"no difference is shown; {lacks}"
    elif gap.high < scale.margin and gap.low <= 0:
        conclusion = f"{other.name} is as good: the two are less than {scale.tolerated} apart"
    elif gap.high < scale.margin:
        conclusion = f"{other.name} is worse, yet by less than the {scale.tolerated} that are tolerated"
    elif gap.shown_worse:
        conclusion = f"{other.name} is shown to be worse"
    else:
        conclusion = "; ".join(filter(None, ("no difference is shown", _rows_needed(gap, scale))))
    return f"{best.name} minus {other.name}: {scale.amount(gap.difference)} [{scale.ends(gap)}]: {conclusion}."


def _rows_needed(gap: TeacherDifference, scale: Scale) -> str:
    """Number of rows that would show this difference, and one as large as the margin; empty if unknown."""
    if gap.needed and gap.needed_for_margin:
        return (
            f"about {gap.needed:,} rows would show one of this size, "
            f"{gap.needed_for_margin:,} rows one of {scale.tolerated}"
        )
    if gap.needed:
        return f"about {gap.needed:,} rows would show one of this size"
    return (
        f"about {gap.needed_for_margin:,} rows would show one of {scale.tolerated}" if gap.needed_for_margin else ""
    )


def _taken(sure: TeacherScore, best: TeacherScore, word: Conclusion, scale: Scale) -> str:
    if word == "better":
        return f"Take {sure.name}: every other teacher is shown to be worse."
    if word == "not shown":
        return f"Take {sure.name}: the best that was seen, and what is not shown to be worse costs no less."
    if sure.name == best.name:
        return f"Take {sure.name}: none is shown to be better, and it is the cheapest of those as good."
    return (
        f"Take {sure.name}: it is at most {scale.tolerated} worse than {best.name}, "
        f"and costs {cost_ratio(sure.cost, best.cost)} what {best.name} does."
    )


def _not_shown(
    take: TeacherScore, best: TeacherScore, above: Gaps, cheaper: Sequence[TeacherScore], rows: int, scale: Scale
) -> str:
    """Explain that the rows are too few to choose between the best teacher and cheaper ones, and whom to take."""
    first = f"No difference shown with {rows:,} rows"
    if take not in cheaper:
        names = " and ".join(score.name for score in cheaper)
        most = max(max(above[score.name].needed or 0, scale.rows_of_fewest(above[score.name])) for score in cheaper)
        until = f"Until about {most:,} rows have told" if most else "Until more rows have told"
        return (
            f"{first}. In these rows worse by more than is tolerated, or not known: {names}. "
            f"{until}, take {take.name}."
        )
    gap = above[take.name]
    costs = f"{take.name} costs {cost_ratio(take.cost, best.cost)} what {best.name} does"
    if (lacks := scale.lacks(gap)) and not gap.tie:
        return f"{first}; {lacks}. {costs}: take {take.name} for now."
    if gap.tie:
        return f"{first}: {take.name} and {best.name} come out alike. {costs}: take {take.name}."
    if gap.needed:
        first = f"No difference shown with {rows:,} rows; {gap.needed:,} would be needed for the difference seen"
    return (
        f"{first}. {costs}: take {take.name}, unless up to {scale.amount(gap.high, sign=False)} "
        "matter more than the price; then ask that many rows first."
    )


def failure_lines(scores: Sequence[TeacherScore]) -> list[str]:
    lines = []
    for score in scores:
        if score.failed > MANY_FAILED:
            lines.append(
                f"{score.name} gave no rewrite for {score.failed:.1%} of the rows. They count here as the question "
                "itself; in training data they would be missing."
            )
        if score.failed > TOO_MANY_FAILED:
            lines.append(f"{score.name} is left out of the choice: more than {TOO_MANY_FAILED:.0%} are missing.")
        elif not can_teach(score):
            lines.append(f"{score.name} is left out of the choice: its quality or its cost is unknown.")
    return lines


def cost_ratio(cost: float, other: float) -> str:
    """Format a price as a multiple of another."""
    if not (math.isfinite(cost) and math.isfinite(other) and other > 0):
        return "an unknown part of"
    return f"{cost / other:.2g} times"
