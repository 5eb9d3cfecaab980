"""Show a rollout as lines for people: its decisions with their figures, and between them the missing evidence."""

import time
from collections.abc import Callable

from qinglan.terminal import Verbatim, in_language
from serving.rollout.canary_analysis import judged_scores, missing_for_check, missing_measurements
from serving.rollout.sequential import Count, safe_needed
from serving.rollout.spec import RolloutSpec
from serving.rollout.state import CheckFigures, DecisionRecord, State

ACTION_WIDTH = 13
PROGRESS_SECONDS = 30.0


def timeline(state: State) -> list[str]:
    """Build a line for each decision, with a line for each measured check below it, and a line with the state."""
    lines = [line for record in state.history for line in decision_lines(record)]
    status = state.outcome if state.phase == "Done" else f"{state.phase}, the canary at {state.percent} %"
    return [*lines, status]


def decision_lines(record: DecisionRecord) -> list[str]:
    """Build the lines of one decision. Reason and figures are translated; phase and action stay English."""
    head = f"{record.at}  {record.phase:<9}  {record.action:<{ACTION_WIDTH}}{in_language(record.why)}"
    return [Verbatim(line) for line in (head, *map(_figures, record.figures))]


class TimelineFollower:
    """Follower of a rollout. It returns each new decision once, and between decisions the missing evidence."""

    def __init__(self, after: DecisionRecord | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self._last_record, self._clock = after, clock
        self._last_progress, self._last_time = "", clock()

    def lines(self, state: State, spec: RolloutSpec) -> list[str]:
        """Return the lines to print now. Progress is included if it has changed and no line was printed for 30 s."""
        # If a long history no longer holds the last printed record, all records are printed.
        known = max(
            (number for number, record in enumerate(state.history, 1) if record == self._last_record), default=0
        )
        records, progress = state.history[known:], progress_line(state, spec)
        self._last_record = state.history[-1] if state.history else self._last_record
        if records:
            self._last_time = self._clock()
            return [line for record in records for line in decision_lines(record)]
        if progress in ("", self._last_progress) or self._clock() - self._last_time < PROGRESS_SECONDS:
            return []
        self._last_progress, self._last_time = progress, self._clock()
        return [progress]


def progress_line(state: State, spec: RolloutSpec) -> str:
    """Build a line with the evidence that is missing for the next share; "" if none is missing."""
    if state.phase != "Analyse" or not state.evidence:
        return ""
    missing = [f"nothing credible measured for {state.blind:,.0f} s"] if state.blind else []
    missing += missing_measurements(state, spec)
    pending = [score for score in judged_scores(state, spec) if missing_for_check(score, state.cursor or 0.0)]
    if pending:
        odds = ", ".join(f"{score.check} {score.safe_value:.3g} to 1" for score in pending)
        missing.append(f"{odds}, where a check needs {safe_needed():,.0f} to 1")
    return f"{spec.steps[state.step]} % waits for: {'; '.join(missing)}" if missing else ""


def _figures(figure: CheckFigures) -> str:
    of_both = figure.check != "quality"
    text = (
        f"canary {_share(figure.canary)}{f', stable {_share(figure.stable)}' if of_both else ''}; "
        f"worse {figure.harm:.3g} to 1, within {100 * figure.margin:.3g} points {figure.safe:.3g} to 1"
    )
    return f"{'':<38}{figure.check:<10} {in_language(text)}"


def _share(count: Count) -> str:
    share = f" ({100 * count.failed / count.total:.2f} %)" if count.total else ""
    return f"{count.failed:,.0f}/{count.total:,.0f}{share}"
