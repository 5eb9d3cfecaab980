"""One schedule from its first look to its end, with the shipped controller or a naive one."""

import time
from collections.abc import Callable
from itertools import pairwise
from typing import NamedTuple

from benchmarks.rollout.faults import Schedule, draw
from benchmarks.rollout.naive import Naive
from benchmarks.rollout.wires import Killed, Wires, spec_of
from benchmarks.rollout.world import CANARY_URI, FOREIGN_URI, STABLE_URI, World
from serving.rollout.reconciler import reconcile
from serving.rollout.state import DesiredModel, State

EVERY = 30.0
LONGEST = 6 * 3600.0
AFTER = 180.0
"""Seconds for which a world is watched after its run has ended: delayed changes may still arrive."""


class Run(NamedTuple):
    """Outcome of one schedule."""

    seed: int
    model: str
    good: bool
    fault: str
    outcome: str
    """Empty where it never ended."""
    seconds: float
    calls: int
    at_full: bool
    """A bad model was given every user by the controller, or has them at the end."""
    settled: bool
    """True if the served version at the end is the one that the outcome names."""
    taken_back: float | None
    """Seconds from the first user who met a bad model to the last."""
    stopped: bool
    """A foreign edit ended it, as its policy says."""
    reasons: tuple[str, ...]


def simulate(seed: int) -> Run:
    """The shipped controller on this seed's schedule."""
    return play(draw(seed), shipped)


def timed(seed: int) -> tuple[Run, float]:
    """The same, and the CPU seconds that it took."""
    began = time.process_time()
    return simulate(seed), time.process_time() - began


def simulate_naive(seed: int) -> Run:
    """A naive one on the same."""
    return play(draw(seed), lambda wires: Naive(wires).reconcile)


def play(schedule: Schedule, controller: Callable[[Wires], Callable[[], str]]) -> Run:
    """From the first look to the end, or until it has taken six hours."""
    world = World(schedule)
    wires = Wires(world, spec_of(schedule))
    act = controller(wires)
    if schedule.faults.chances.preempted:
        wires.rival = lambda: guarded(act, wires)
    at, outcome = 20.0, ""
    while not outcome and at < LONGEST:
        world.advance(at)
        pause = guarded(act, wires)
        outcome = ending(wires.state)
        at += pause + float(wires.random.uniform(-3, 3))
    _linger(world, act, wires)
    return _judged(world, wires, outcome)


def ending(state: State) -> str:
    return state.outcome if state.phase == "Done" else ""


def shipped(wires: Wires) -> Callable[[], str]:
    """The shipped controller's look."""
    ports = wires.ports()
    return lambda: reconcile(ports)


def guarded(act: Callable[[], str], wires: Wires) -> float:
    """A look, at once again where somebody else wrote; the seconds until the next, more after a crash."""
    try:
        for _ in range(3):
            if act() != "again":
                break
    except Killed:
        return float(wires.random.uniform(5, 90))
    return EVERY


def _linger(world: World, act: Callable[[], str], wires: Wires) -> None:
    end = world.now
    world.edits.clear()
    while world.now < end + AFTER:
        world.advance(world.now + EVERY)
        guarded(act, wires)


def _judged(world: World, wires: Wires, outcome: str) -> Run:
    model, traffic = world.schedule.model, dict(world.read().traffic)
    home = CANARY_URI if outcome == "Promoted" else STABLE_URI
    untouched = outcome == "Refused" and not world.asks
    bad_now = traffic.get(FOREIGN_URI, 0) > 0 or (not model.good and traffic.get(CANARY_URI, 0) == 100)
    return Run(
        seed=world.schedule.seed,
        model=model.kind,
        good=model.good,
        fault=world.schedule.faults.kind,
        outcome=outcome,
        seconds=world.now - AFTER,
        calls=wires.calls,
        at_full=(not model.good and _given_everybody(world)) or (bad_now and not untouched),
        settled=untouched or (traffic.get(home) == 100 and world.desired == DesiredModel(uri=home)),
        taken_back=_taken_back(world),
        stopped=any("changed what is served" in reason for reason in wires.state.reasons),
        reasons=wires.state.reasons,
    )


def _given_everybody(world: World) -> bool:
    """Tell if the controller ever asked for the canary to have every user, or what else it asked did that."""
    return world.promoted or any(
        now.canary == 100 and now.by == "ours" and before.canary < 100 for before, now in pairwise(world.moments)
    )


def _taken_back(world: World) -> float | None:
    if world.bad_since is None:
        return None
    last = next((moment.at for moment in reversed(world.moments) if moment.canary == 0), None)
    return None if last is None or last < world.bad_since else last - world.bad_since
