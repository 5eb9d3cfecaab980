"""What a window of measurements says of the canary: is it credible, is it harm, what is still lacking."""

from math import isfinite

from serving.rollout.ports import Window
from serving.rollout.sequential import Block, Count, Score, fold, harm_needed, reset_for_step, safe_needed
from serving.rollout.spec import Check, RolloutSpec
from serving.rollout.state import State

EVEN = 0.5
"""Of untied shadow pairs, what a canary that is as good loses."""
MAX_MARGIN = 0.5
MIN_ANSWERED_SHARE = 0.5
"""Of the traffic that it was given, what the canary must be seen to answer itself."""
MIN_EXPECTED_REQUESTS = 30.0
"""Requests that must be expected of the canary before too few of them mean anything."""
STALE_SECONDS = 240.0
"""A check without news for so long is no longer passed."""
ZERO_COUNT = Count(0, 0)
NO_PAIRS = "no shadow pair told the two apart: nobody asked, or both wrote the same"


def credibility_problem(window: Window | None, percent: int, cursor: float | None) -> str:
    """Why these numbers are no evidence of the canary; empty where they are."""
    if window is None:
        return "no measurements"
    if cursor is None:
        return ""
    if window.until <= cursor:
        return "the measurements stand still"
    if not all(_valid_count(count) for count in (*window.canary.values(), *window.stable.values())):
        return "the measurements contradict themselves: more failures than requests, or no numbers at all"
    if percent == 0:
        return "" if window.canary.get("quality", ZERO_COUNT).total else NO_PAIRS
    canary, stable = (side.get("errors", ZERO_COUNT).total for side in (window.canary, window.stable))
    if not canary or not stable:
        return f"no requests are counted under the {'stable' if canary else 'canary'} model's version"
    expected = (canary + stable) * percent / 100
    if expected >= MIN_EXPECTED_REQUESTS and canary < expected * MIN_ANSWERED_SHARE:
        return f"the canary is asked for {percent} % and answered {100 * canary / (canary + stable):.1f} %"
    return ""


def _valid_count(count: Count) -> bool:
    return isfinite(count.total) and isfinite(count.failed) and 0 <= count.failed <= count.total


def enter_step(state: State, spec: RolloutSpec, step: int) -> State:
    """The state as a step begins: its sample and time at nothing, its proof of safety still to be made."""
    known = {score.check: score for score in state.evidence}
    ahead = spec.steps[min(step + 1, len(spec.steps) - 1)]
    scores = tuple(
        _score_for_step(known.get(check.name), check, tolerated_margin(check, ahead)) for check in spec.checks
    )
    update = {"step": step, "evidence": scores, "cursor": None, "step_seconds": 0.0, "blind": 0.0}
    return state.model_copy(update=update)


def _score_for_step(score: Score | None, check: Check, margin: float) -> Score:
    return reset_for_step(score, margin) if score else Score(check=check.name, margin=margin)


def tolerated_margin(check: Check, ahead: int) -> float:
    """Between the models, so that the next share of users costs all of them together no more than the margin."""
    if check.name == "quality":
        return min(check.margin, MAX_MARGIN - 0.01)
    return min(check.margin * 100 / ahead, MAX_MARGIN)


def fold_window(state: State, window: Window) -> State:
    """With the window's counts in the evidence; a window that begins a step only sets the cursor."""
    if state.cursor is None:
        return state.model_copy(update={"cursor": window.until, "blind": 0.0})
    most = harm_needed(len(state.evidence))
    scores = tuple(_fold_score(score, window, most) for score in state.evidence)
    seconds = state.step_seconds + max(window.until - state.cursor, 0.0)
    update = {"evidence": scores, "cursor": window.until, "step_seconds": seconds, "blind": 0.0}
    return state.model_copy(update=update)


def _fold_score(score: Score, window: Window, most: float) -> Score:
    canary = window.canary.get(score.check, ZERO_COUNT)
    stable = window.stable.get(score.check, ZERO_COUNT)
    if score.check == "quality":
        return fold(score, Block(canary, ZERO_COUNT, EVEN), window.until, most) if canary.total else score
    return fold(score, Block(canary, stable), window.until, most) if canary.total and stable.total else score


def harmful_checks(state: State) -> tuple[str, ...]:
    """The checks in which the canary is shown to be worse than the stable model."""
    needed = harm_needed(len(state.evidence))
    return tuple(
        f"{describe_score(score)}: worse, {score.harm_value:,.0f} to 1, {needed:,.0f} to 1 is enough"
        for score in state.evidence
        if score.harm_value >= needed
    )


def missing_evidence(state: State, spec: RolloutSpec) -> tuple[str, ...]:
    """What must still be seen before the canary has earned its next share."""
    missing = []
    scores = [score for score in state.evidence if spec.steps[state.step] or score.check == "quality"]
    sample = next((score.canary.total for score in scores if score.check == "errors"), scores[0].canary.total)
    if state.step_seconds < spec.step_seconds:
        missing.append(f"measured for {state.step_seconds:,.0f} s of {spec.step_seconds:,}")
    if sample < spec.minimum_sample:
        missing.append(f"{sample:,.0f} requests of {spec.minimum_sample:,}")
    return (*missing, *(why for score in scores for why in _missing_for_check(score, state.cursor or 0.0)))


def _missing_for_check(score: Score, now: float) -> list[str]:
    if not score.until:
        return [f"{score.check}: nothing was measured"]
    if now - score.until > STALE_SECONDS:
        return [f"{score.check}: nothing measured for {now - score.until:,.0f} s"]
    if score.safe_value < safe_needed():
        return [
            f"{describe_score(score)}: not worse by {100 * score.margin:.3g} points, {score.safe_value:.3g} to 1, "
            f"{safe_needed():,.0f} to 1 is needed"
        ]
    return []


def describe_score(score: Score) -> str:
    """A check's counts in words."""
    words = f"{score.check} {_share(score.canary)}"
    return words if score.check == "quality" else f"{words} beside {_share(score.stable)}"


def _share(count: Count) -> str:
    share = f" ({100 * count.failed / count.total:.2f} %)" if count.total else ""
    return f"{count.failed:,.0f} of {count.total:,.0f}{share}"
