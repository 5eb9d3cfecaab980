"""Evidence on the canary: check if measurements are credible, detect harm, and list the evidence that is missing."""

from math import isfinite, sqrt

from serving.rollout.ports import Window
from serving.rollout.sequential import Block, Count, Score, fold, harm_needed, reset_for_step, safe_needed
from serving.rollout.spec import Check, RolloutSpec
from serving.rollout.state import Requests, State

EVEN = 0.5
"""Share of the untied shadow pairs that a canary loses if it is as good as the stable model. A shadow pair is one
question that both models have rewritten."""
MAX_MARGIN = 0.5
SHARE_SLACK = 0.25
"""Relative error of one model's request count that is allowed in addition to chance. The counters of the two models
are read at different moments, and a model that hangs counts its requests late."""
SHARE_DEVIATIONS = 3.0
"""Standard deviations of the binomial distribution by which the canary's share may be off, in addition to
SHARE_SLACK. Both together are more than five deviations at 5 % of 2,000 requests. A window that is refused by chance
is counted together with the next window."""
LONGEST_INTERVAL = 120.0
"""Longest time in seconds that counts between two reconciles, so that a clock that jumps has little effect."""

STALE_SECONDS = 240.0
"""Seconds without new counts after which a check no longer counts as passed."""
ZERO_COUNT = Count(0, 0)
NO_REQUESTS = Requests()
NO_PAIRS = "no shadow pair told the two apart: nobody asked, or both wrote the same"


def credibility_problem(
    window: Window | None, percent: int, cursor: float | None, counted: Requests = NO_REQUESTS
) -> str:
    """Explain why a window of counts is not credible evidence on the canary; "" if it is credible.

    `counted` are the requests of this step that are already in the evidence.
    """
    if window is None:
        return "no measurements"
    # If the clock of the measurements was set back, the window has no counts, and only moves the cursor.
    if cursor is None or (window.until < cursor and not window.canary and not window.stable):
        return ""
    if window.until <= cursor:
        return "the measurements stand still"
    for total, failed in (*window.canary.values(), *window.stable.values()):
        if not (isfinite(total) and isfinite(failed) and 0 <= failed <= total):
            return "the measurements contradict themselves: more failures than requests, or no numbers at all"
    if percent == 0:
        return "" if window.canary.get("quality", ZERO_COUNT).total else NO_PAIRS
    requests = requests_of(window)
    if not requests.canary or not requests.stable:
        return f"no requests are counted under the {'stable' if requests.canary else 'canary'} model's version"
    return _share_problem(counted + requests, percent)


def requests_of(window: Window) -> Requests:
    canary, stable = (side.get("errors", ZERO_COUNT).total for side in (window.canary, window.stable))
    return Requests(canary=canary, stable=stable)


def _share_problem(requests: Requests, percent: int) -> str:
    """Explain why the canary's share of the requests does not fit `percent` of the users; "" if it fits."""
    # The canary's number of n requests is binomial, with mean n p and variance v = n p (1 - p). It may be off by some
    # standard deviations, sqrt(v) each. If one model's count is off by a part s, the canary's share is off by
    # s p (1 - p), and its number by s v.
    total, share = requests.canary + requests.stable, percent / 100
    variance = total * share * (1 - share)
    allowed = SHARE_SLACK * variance + SHARE_DEVIATIONS * sqrt(variance)
    off = requests.canary - total * share
    if abs(off) <= allowed:
        return ""
    # Both directions are refused. With too few requests, the stable model answers for the canary. With too many, some
    # do not come from its share of the users, such as easy requests that somebody sends directly to the canary to
    # hide its errors.
    cause = "somebody asks it by another way" if off > 0 else "the stable model answers for it"
    answered = 100 * requests.canary / total
    return (
        f"the canary is asked for {percent} % and answered {answered:.1f} % of {total:,.0f} requests, "
        f"which chance does not explain: {cause}, or the share was changed"
    )


def enter_step(state: State, spec: RolloutSpec, step: int) -> State:
    """Start a step of the rollout: reset the counts and the time, and set each check's margin for the next step."""
    known = {score.check: score for score in state.evidence}
    next_percent = spec.steps[min(step + 1, len(spec.steps) - 1)]
    scores = []
    for check in spec.checks:
        margin = tolerated_margin(check, next_percent)
        score = known.get(check.name)
        scores.append(reset_for_step(score, margin) if score else Score(check=check.name, margin=margin))
    fresh = {"cursor": None, "step_seconds": 0.0, "blind": 0.0, "requests": Requests()}
    return state.model_copy(update={"step": step, "evidence": tuple(scores), **fresh})


def tolerated_margin(check: Check, next_percent: int) -> float:
    """Compute the tolerated difference of the two models' failure rates.

    At the canary's next share of the traffic, this difference adds `check.margin` to the failure rate of all users.
    """
    if check.name == "quality":  # shadow pairs are judged beside the traffic, at any share
        return min(check.margin, MAX_MARGIN - 0.01)
    return min(check.margin * 100 / next_percent, MAX_MARGIN)


def fold_window(state: State, window: Window) -> State:
    """Add a window's counts to the evidence. The first window of a step sets only the cursor, and adds no counts."""
    if state.cursor is None:
        return state.model_copy(update={"cursor": window.until, "blind": 0.0})
    needed, scores = harm_needed(len(state.evidence)), []
    for score in state.evidence:
        canary, stable = (side.get(score.check, ZERO_COUNT) for side in (window.canary, window.stable))
        block = Block(canary, ZERO_COUNT, EVEN) if score.check == "quality" else Block(canary, stable)
        has_counts = canary.total and (stable.total or block.known is not None)
        scores.append(fold(score, block, window.until, needed) if has_counts else score)
    seconds = state.step_seconds + counted_seconds(window.until - state.cursor)
    requests = state.requests + requests_of(window)
    update = {"cursor": window.until, "step_seconds": seconds, "blind": 0.0, "requests": requests}
    return state.model_copy(update={"evidence": tuple(scores), **update})


def counted_seconds(passed: float) -> float:
    """Limit the seconds between two reconciles to 0 (if the clock was set back) up to LONGEST_INTERVAL."""
    return min(max(passed, 0.0), LONGEST_INTERVAL)


def harmful_checks(state: State) -> tuple[str, ...]:
    """List the checks that show that the canary is worse than the stable model, each with its counts."""
    needed = harm_needed(len(state.evidence))
    return tuple(
        f"{describe_harm(score)}: worse, {score.harm_value:,.0f} to 1, {needed:,.0f} to 1 is enough"
        for score in state.evidence
        if score.harm_value >= needed
    )


def missing_evidence(state: State, spec: RolloutSpec) -> tuple[str, ...]:
    """List the evidence that is missing before the canary may get its next share; empty if nothing is missing."""
    checks = (why for score in judged_scores(state, spec) for why in missing_for_check(score, state.cursor or 0.0))
    return (*missing_measurements(state, spec), *checks)


def judged_scores(state: State, spec: RolloutSpec) -> list[Score]:
    """Return the scores of the checks that count at this step. At 0 % of the users, only `quality` counts."""
    return [score for score in state.evidence if spec.steps[state.step] or score.check == "quality"]


def missing_measurements(state: State, spec: RolloutSpec) -> tuple[str, ...]:
    """List the time and the requests that this step still needs, however strong the statistical evidence is."""
    scores = judged_scores(state, spec)
    sample = next((score.canary.total for score in scores if score.check == "errors"), scores[0].canary.total)
    missing = []
    if state.step_seconds < spec.step_seconds:
        missing.append(f"measured for {state.step_seconds:,.0f} s of {spec.step_seconds:,}")
    if sample < spec.minimum_sample:
        missing.append(f"{sample:,.0f} requests of {spec.minimum_sample:,}")
    return tuple(missing)


def missing_for_check(score: Score, now: float) -> list[str]:
    if not score.until:
        return [f"{score.check}: nothing was measured"]
    # `now` is before `until` if the clock of the measurements was set back.
    if abs(now - score.until) > STALE_SECONDS:
        return [f"{score.check}: nothing measured for {abs(now - score.until):,.0f} s"]
    if score.safe_value < safe_needed():
        return [
            f"{describe_score(score)}: not worse by {100 * score.margin:.3g} points, {score.safe_value:.3g} to 1, "
            f"{safe_needed():,.0f} to 1 is needed"
        ]
    return []


def describe_harm(score: Score) -> str:
    """Describe a check's failures since its present evidence of harm began, and the failures of an equal model.

    That period, `harm_period` in sequential.py, may be shorter or longer than the rollout's step.
    """
    period = score.harm_period
    if not period.canary.total:
        return describe_score(score)  # a check that was never bet on
    seconds = f" in {score.until - period.since:,.0f} s" if 0 < period.since <= score.until else ""
    expected = f"{period.expected:,.1f} ({_percent(period.expected, period.canary.total)})"
    peer = "of an equal model" if score.check == "quality" else "at the stable model's rates in the same windows"
    return f"{score.check} {_share(period.canary)}{seconds}, {expected} expected {peer}"


def describe_score(score: Score) -> str:
    """Describe a check's counts at this step."""
    words = f"{score.check} {_share(score.canary)}"
    return words if score.check == "quality" else f"{words} beside {_share(score.stable)}"


def _share(count: Count) -> str:
    share = f" ({_percent(count.failed, count.total)})" if count.total else ""
    return f"{count.failed:,.0f} of {count.total:,.0f}{share}"


def _percent(part: float, whole: float) -> str:
    return f"{100 * part / whole:.2f} %"
