"""Faults of a simulated rollout, drawn from its seed before the rollout begins.

Each schedule has one chief kind of fault, in strength, over a background in which every call may fail now and then.
Written before the controller, so that neither was fitted to the other.
"""

from typing import NamedTuple

import numpy as np

from benchmarks.rollout.models import Model, Traffic, draw_model, draw_traffic, with_cost

HORIZON = 1800.0
"""Seconds within which events fall: one and a half times a rollout without faults."""

WEIGHTS = {
    "none": 0.04, "timeouts": 0.08, "lost_replies": 0.08, "conflicts": 0.08, "throttling": 0.06, "stale_reads": 0.08,
    "restarts": 0.10, "two_leaders": 0.10, "metric_gaps": 0.08, "metric_lies": 0.08, "slow_start": 0.06,
    "foreign_edits": 0.04, "clock_jumps": 0.06, "mixed": 0.06,
}  # fmt: skip
KINDS = tuple(WEIGHTS)

BACKGROUND = 0.01
STRONG = (0.10, 0.35)
"""The chance that a call meets the fault, in the background and as the chief kind."""

RESTARTS = (0.02, 0.10)
"""The chance that the controller dies at any one call, before or after its effect."""

PREEMPTIONS = (0.05, 0.25)
"""The chance that, at any one call, a second controller that also believes it leads acts before the first goes on."""

GAPS, GAP_SECONDS = (1, 3), (20.0, 140.0)
LIES = ("nan", "zeros", "reset", "frozen", "stable_only")
"""NaN; counters at zero; fewer than before; the last answer again; and no series of the canary's version at all."""

START_SECONDS, SLOW_START_SECONDS, START_SPREAD = 60.0, 300.0, 0.5
"""The median time until a new revision is ready, and the spread of its logarithm."""

EDITS = ("uri", "cleared", "full", "percent", "rest")
"""Another model; the percent removed, which promotes; 100; another share; something else that pods are made of."""

JUMPS, JUMP_SECONDS = (1, 3), (-3600.0, 3600.0)
RECONCILE_SECONDS = (1.0, 20.0)
"""Seconds that KServe takes to act on a change."""


class Chances(NamedTuple):
    """Faults that each call to the API server meets."""

    timeout: float
    lost_reply: float
    conflict: float
    throttled: float
    stale: float
    killed: float
    preempted: float


class Span(NamedTuple):
    start: float
    end: float
    kind: str


class Edit(NamedTuple):
    """Somebody else changes the InferenceService."""

    at: float
    kind: str


class Jump(NamedTuple):
    """The controller's clock is `seconds` off from `at` on, for two minutes or for good."""

    at: float
    until: float
    seconds: float


class Faults(NamedTuple):
    kind: str
    chances: Chances
    gaps: tuple[Span, ...]
    edits: tuple[Edit, ...]
    jumps: tuple[Jump, ...]
    start_seconds: tuple[float, ...]
    reconcile_seconds: float
    restore: bool
    """The policy on foreign edits: put ours back, or stop."""


class Schedule(NamedTuple):
    """All that a simulated rollout meets."""

    seed: int
    model: Model
    traffic: Traffic
    faults: Faults


def draw(seed: int) -> Schedule:
    """The same seed, the same schedule."""
    random = np.random.default_rng(seed)
    kind = str(random.choice(KINDS, p=list(WEIGHTS.values())))
    model = with_cost(draw_model(random), np.random.default_rng([seed, 4]))
    return Schedule(seed, model, draw_traffic(random, HORIZON), draw_faults(kind, random))


def draw_faults(kind: str, random: np.random.Generator) -> Faults:
    median = SLOW_START_SECONDS if kind == "slow_start" else START_SECONDS
    starts = tuple(float(median * np.exp(random.normal(0, START_SPREAD))) for _ in range(8))
    return Faults(
        kind,
        _chances(kind, random),
        _gaps(kind, random),
        _edits(kind, random),
        _jumps(kind, random),
        starts,
        float(random.uniform(*RECONCILE_SECONDS)),
        bool(random.random() < 0.5),
    )


def _chances(kind: str, random: np.random.Generator) -> Chances:
    quiet = 0.0 if kind == "none" else BACKGROUND

    def chance(*names: str, span: tuple[float, float] = STRONG, background: float = quiet) -> float:
        if kind in names:
            return float(random.uniform(*span))
        return span[0] if kind == "mixed" else background

    return Chances(
        chance("timeouts"),
        chance("lost_replies"),
        chance("conflicts"),
        chance("throttling"),
        chance("stale_reads"),
        chance("restarts", span=RESTARTS, background=0.0),
        chance("two_leaders", span=PREEMPTIONS, background=0.0),
    )


def _gaps(kind: str, random: np.random.Generator) -> tuple[Span, ...]:
    if kind not in ("metric_gaps", "metric_lies", "mixed"):
        return ()
    spans = []
    for _ in range(int(random.integers(GAPS[0], GAPS[1] + 1))):
        start = float(random.uniform(0, HORIZON))
        lie = "gap" if kind == "metric_gaps" else str(random.choice(LIES))
        spans.append(Span(start, start + float(random.uniform(*GAP_SECONDS)), lie))
    return tuple(spans)


def _edits(kind: str, random: np.random.Generator) -> tuple[Edit, ...]:
    if kind != "foreign_edits":
        return ()
    count = int(random.integers(1, 3))
    return tuple(Edit(float(random.uniform(60, HORIZON)), str(random.choice(EDITS))) for _ in range(count))


def _jumps(kind: str, random: np.random.Generator) -> tuple[Jump, ...]:
    if kind not in ("clock_jumps", "mixed"):
        return ()
    jumps = []
    for _ in range(int(random.integers(JUMPS[0], JUMPS[1] + 1))):
        at = float(random.uniform(0, HORIZON))
        until = at + 120.0 if random.random() < 0.5 else float("inf")
        jumps.append(Jump(at, until, float(random.uniform(*JUMP_SECONDS))))
    return tuple(jumps)
