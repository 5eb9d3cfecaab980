"""Recommend a teacher, in words: a pure function of levels, paired differences and prices."""

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
"""With fewer, the bootstrap's intervals are too narrow to say anything by."""

RULE_OF_THREE = 3
"""If none of n conversations differs, the interval has no width; yet up to 3 / n of all may, at 95 %."""

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
    """Rows that both are known on."""

    conversations: int
    """Conversations of these rows."""

    @property
    def shown_worse(self) -> bool:
        """The whole interval and the corrected p say that the second is worse; what is unknown says nothing."""
        return self.low > 0 and self.p < P

    def turned(self) -> "TeacherDifference":
        return self._replace(difference=-self.difference, low=-self.high, high=-self.low)


Gaps = Mapping[str, TeacherDifference]
"""The best teacher's difference to each of the others, by the other's name."""


class Recommendation(NamedTuple):
    word: Conclusion
    """better: everyone else is shown to be worse. as good: the cheapest of those within the margin. not shown: too
    few rows to say. alone: only one gave enough rewrites. none: nobody did."""

    take: str
    """Empty for none."""

    lines: list[str]


class Scale(NamedTuple):
    """The deciding metric's margin and unit: how differences are judged and read."""

    margin: float
    unit: str

    @property
    def tolerated(self) -> str:
        return self.amount(self.margin, sign=False)

    def amount(self, value: float, sign: bool = True) -> str:
        """A difference: points of a share, else in the metric's own unit."""
        return f"{self.number(value, sign)} {self.unit}" if math.isfinite(value) else "an unknown amount"

    def number(self, value: float, sign: bool = True) -> str:
        plus = "+" if sign else "-"
        # z: never -0.0
        return f"{100 * value:{plus}z.1f}" if self.unit == "points" else f"{value:{plus}z.2f}"

    def ends(self, gap: TeacherDifference) -> str:
        return ", ".join(self.number(end) if math.isfinite(end) else "unknown" for end in (gap.low, gap.high))

    def fewest(self, gap: TeacherDifference) -> int:
        """Conversations without which its interval says nothing."""
        if gap.low < gap.high:
            return FEWEST_CONVERSATIONS
        if not self.margin > 0:
            return sys.maxsize  # no number of them shows that there is no difference at all
        return max(FEWEST_CONVERSATIONS, math.ceil(round(RULE_OF_THREE * SPANS[self.unit] / self.margin, 6)))

    def rows_of_fewest(self, gap: TeacherDifference) -> int:
        """Rows like these that hold as many conversations; 0 where nobody knows."""
        fewest = self.fewest(gap)
        if not gap.conversations or fewest == sys.maxsize:
            return 0
        return math.ceil(fewest * gap.rows / gap.conversations)

    def lacks(self, gap: TeacherDifference) -> str | None:
        """The reason why its interval says nothing yet, and the rows that would do; None where it may be believed."""
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
    """`gaps` holds each pair once, in either order; `rows` are those on which the deciding metric is known."""
    able, failures, scale = (
        [score for score in scores if can_teach(score)],
        failure_lines(scores),
        Scale(margin, unit),
    )
    if len(able) < 2:
        return _without_choice(able, failures)
    best = max(able, key=lambda score: (score.value, -score.cost))
    rest = [score for score in able if score.name != best.name]
    above = {
        score.name: gaps[best.name, score.name]
        if (best.name, score.name) in gaps
        else gaps[score.name, best.name].turned()
        for score in rest
    }
    known = [score for score in rest if scale.lacks(above[score.name]) is None]
    within = [score for score in known if above[score.name].high < margin]
    worse = [score for score in known if above[score.name].shown_worse and score not in within]
    unclear = [score for score in rest if score not in within and score not in worse]
    sure = min([best, *within], key=lambda score: score.cost)
    lines = [*(describe_difference(best, score, above[score.name], scale) for score in rest), *failures]
    if not (cheaper := [score for score in unclear if score.cost < sure.cost]):
        word: Conclusion = "as good" if within else "not shown" if unclear else "better"
        return Recommendation(word, sure.name, [_taken(sure, best, word, scale), *lines])
    hopeful = [score for score in cheaper if above[score.name].difference <= margin]
    take = min(hopeful, key=lambda score: score.cost) if hopeful else sure
    return Recommendation("not shown", take.name, [_not_shown(take, best, above, cheaper, rows, scale), *lines])


def _without_choice(able: Sequence[TeacherScore], failures: Sequence[str]) -> Recommendation:
    """Nothing is said of quality where there is nobody to compare with."""
    if not able:
        first = "Take none of them: no teacher gave a rewrite that can be judged for enough of the rows."
        return Recommendation("none", "", [first, *failures])
    first = f"Take {able[0].name}: it alone gave rewrites that can be judged for enough of the rows."
    return Recommendation("alone", able[0].name, [first, *failures])


def can_teach(score: TeacherScore) -> bool:
    """Tell if there is enough of it to judge; what is unknown is never the best, and nothing is not cheap."""
    return math.isfinite(score.value) and math.isfinite(score.cost) and score.failed <= TOO_MANY_FAILED


def describe_difference(best: TeacherScore, other: TeacherScore, gap: TeacherDifference, scale: Scale) -> str:
    """One teacher beside the best, as far as it is known."""
    if lacks := scale.lacks(gap):
        conclusion = f"no difference is shown; {lacks}"
    elif gap.high < scale.margin and gap.low <= 0:
        conclusion = f"{other.name} is as good: the two are less than {scale.tolerated} apart"
    elif gap.high < scale.margin:
        conclusion = f"{other.name} is worse, yet by less than the {scale.tolerated} that are tolerated"
    elif gap.shown_worse:
        conclusion = f"{other.name} is shown to be worse"
    else:
        needed = [f"about {gap.needed:,} rows would show one of this size"] if gap.needed else []
        needed += [f"{gap.needed_for_margin:,} one of {scale.tolerated}"] if gap.needed_for_margin else []
        conclusion = "; ".join(["no difference is shown", *([", ".join(needed)] if needed else [])])
    return f"{best.name} minus {other.name}: {scale.amount(gap.difference)} [{scale.ends(gap)}]: {conclusion}."


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
    """Too few rows to choose between the best seen and what costs less."""
    first = f"No difference shown with {rows:,} rows"
    if take not in cheaper:
        names = " and ".join(score.name for score in cheaper)
        verb = "looks" if len(cheaper) == 1 else "look"
        most = max(max(above[score.name].needed or 0, scale.rows_of_fewest(above[score.name])) for score in cheaper)
        until = f"Until about {most:,} rows have told" if most else "Until more rows have told"
        return (
            f"{first}, but {names} {verb} worse by more than is tolerated, or is unknown. {until}, take {take.name}."
        )
    gap = above[take.name]
    costs = f"{take.name} costs {cost_ratio(take.cost, best.cost)} what {best.name} does"
    if lacks := scale.lacks(gap):
        return f"{first}; {lacks}. {costs}: take {take.name} for now."
    more = f"; {gap.needed:,} would be needed for the difference seen" if gap.needed else ""
    return (
        f"{first}{more}. {costs}: take {take.name}, unless up to {scale.amount(gap.high, sign=False)} "
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
    """One price as a part of another."""
    if not (math.isfinite(cost) and math.isfinite(other) and other > 0):
        return "an unknown part of"
    return f"{cost / other:.2g} times"
