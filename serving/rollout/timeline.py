"""A rollout's history as lines: when, what, why, and the numbers that each decision was made on."""

from serving.rollout.sequential import Count
from serving.rollout.state import CheckFigures, DecisionRecord, State

WIDTH = 13


def timeline(state: State) -> list[str]:
    """One line for each decision, and one below it for each check that had been measured."""
    lines = [line for record in state.history for line in decision_lines(record)]
    return [*lines, _status_line(state)]


def decision_lines(record: DecisionRecord) -> list[str]:
    head = f"{record.at}  {record.phase:<9}  {record.action:<{WIDTH}}{record.why}"
    return [head, *(_figures(figure) for figure in record.figures)]


def _figures(figure: CheckFigures) -> str:
    both = f"canary {_share(figure.canary)}"
    if figure.check != "quality":
        both += f", stable {_share(figure.stable)}"
    odds = f"worse {figure.harm:.3g} to 1, within {100 * figure.margin:.3g} points {figure.safe:.3g} to 1"
    return f"{'':<38}{figure.check:<10} {both}; {odds}"


def _share(count: Count) -> str:
    of, failed = (f"{number:,.0f}" for number in count)
    return f"{failed}/{of}" + (f" ({100 * count.failed / count.total:.2f} %)" if count.total else "")


def _status_line(state: State) -> str:
    if state.phase == "Done":
        return state.outcome
    return f"{state.phase}, the canary at {state.percent} %"
