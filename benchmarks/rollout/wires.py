"""The ports of a simulated rollout: everything a call can meet, before or after its effect."""

from collections import deque
from collections.abc import Callable
from typing import TypeVar

import numpy as np

from benchmarks.rollout.faults import Schedule, Span
from benchmarks.rollout.models import COSTLY
from benchmarks.rollout.world import CANARY_URI, TICK, TRAFFIC_CHECKS, World
from qinglan.errors import ConflictError, OutageError
from serving.rollout.ports import Ports, Proof, RolloutSnapshot, ServiceSnapshot, Window
from serving.rollout.sequential import Count
from serving.rollout.spec import Release, RolloutSpec, default_checks
from serving.rollout.state import DesiredModel, State

EPOCH = 1_790_000_000.0
SCRAPE_SECONDS = 10.0
Result = TypeVar("Result")


class Killed(BaseException):
    """The controller's process ended, here and now."""


def spec_of(schedule: Schedule) -> RolloutSpec:
    """The default policy where a shadow runs, as it does here; what to do about foreign edits is drawn."""
    release = Release(name="demo/rewriter", digest=f"{2:064x}", uri=CANARY_URI, model="c" * 64)
    edits = "Restore" if schedule.faults.restore else "Stop"
    return RolloutSpec(
        inference_service="rewriter", release=release, foreign_edits=edits, checks=default_checks(shadowed=True)
    )


class Wires:
    """Ports over one world. `rival` is called where a second controller gets in between."""

    def __init__(self, world: World, spec: RolloutSpec) -> None:
        self.world, self.spec = world, spec
        self.faults = world.schedule.faults
        self.random = np.random.default_rng([world.schedule.seed, 2])
        self.state, self.version = State(), 1
        self.calls = 0
        self.rival: Callable[[], object] | None = None
        self._older: deque[RolloutSnapshot] = deque(maxlen=4)
        self._answer: Window | None = None

    def ports(self) -> Ports:
        return Ports(
            _Ledger(self), _Target(self), _Evidence(self).since, _Releases(self).prove, self.clock, lambda: True
        )

    def met(self, kind: str) -> bool:
        chance: float = getattr(self.faults.chances, kind)
        return bool(chance and self.random.random() < chance)

    def call(self, effect: Callable[[], Result], write: Callable[[], None] | None = None) -> Result:
        """One call to the API server; a `write` that times out may still be done, now or later."""
        self.calls += 1
        if self.rival and self.met("preempted"):
            rival, self.rival = self.rival, None
            rival()
            self.rival = rival
        if self.met("killed"):
            raise Killed
        if self.met("throttled"):
            raise OutageError("429: too many requests")
        if write and self.met("conflict"):
            raise ConflictError("409")
        if self.met("timeout"):
            if write and self.random.random() < 0.5:
                self.world.late.append((self.world.now + float(self.random.uniform(5, 60)), _quietly(write)))
            raise OutageError("timed out")
        result = effect()
        if write and self.met("lost_reply"):
            raise OutageError("the connection was lost")
        if self.met("killed"):
            raise Killed
        return result

    def entry(self) -> RolloutSnapshot:
        return RolloutSnapshot(self.spec, self.state, str(self.version))

    def older(self) -> RolloutSnapshot:
        return self._older[int(self.random.integers(len(self._older)))] if self._older else self.entry()

    def store(self, state: State, expected: str) -> None:
        if expected != str(self.version):
            raise ConflictError("the ModelRollout was changed meanwhile")
        self._older.append(self.entry())
        self.state, self.version = state, self.version + 1

    def lie(self) -> Span | None:
        return next((span for span in self.faults.gaps if span.start <= self.world.now < span.end), None)

    def clock(self) -> float:
        jumps = (jump for jump in self.faults.jumps if jump.at <= self.world.now < jump.until)
        return EPOCH + self.world.now + sum(jump.seconds for jump in jumps)

    def measured(self, after: float | None) -> Window | None:
        lie = self.lie()
        if lie and lie.kind == "frozen" and self._answer:
            return self._answer
        if lie and lie.kind == "gap":
            return None
        self._answer = counted(self.world, after)
        return lied(self._answer, lie.kind) if lie else self._answer


def counted(world: World, after: float | None) -> Window:
    """Answer as a Prometheus that scraped a moment ago."""
    until = max((world.now - SCRAPE_SECONDS) // TICK * TICK, 0.0)
    begin = until if after is None else min(after, until)
    row = world.counters[int(until / TICK)] - world.counters[int(begin / TICK)]
    canary = {check: Count(float(row[0]), float(row[2 + at])) for at, check in enumerate(TRAFFIC_CHECKS)}
    stable = {check: Count(float(row[1]), float(row[6 + at])) for at, check in enumerate(TRAFFIC_CHECKS)}
    canary |= {COSTLY: Count(float(row[0]), float(row[12])), "quality": Count(float(row[10]), float(row[11]))}
    return Window(until, canary, stable | {COSTLY: Count(float(row[1]), float(row[13]))})


def lied(window: Window, kind: str) -> Window:
    if kind == "stable_only":
        return window._replace(canary={})
    factor = {"nan": float("nan"), "zeros": 0.0, "reset": -1.0}.get(kind, 1.0)
    canary, stable = (
        {check: Count(count.total * factor, count.failed * factor) for check, count in side.items()}
        for side in (window.canary, window.stable)
    )
    return Window(window.until, canary, stable)


def _quietly(write: Callable[[], None]) -> Callable[[], None]:
    def arrive() -> None:
        try:
            write()
        except ConflictError:
            return

    return arrive


class _Ledger:
    def __init__(self, wires: Wires) -> None:
        self.wires = wires

    def read(self) -> RolloutSnapshot:
        wires = self.wires
        return wires.call(wires.older if wires.met("stale") else wires.entry)

    def write(self, state: State, expected: str) -> None:
        def effect() -> None:
            self.wires.store(state, expected)

        self.wires.call(effect, effect)


class _Target:
    def __init__(self, wires: Wires) -> None:
        self.wires = wires

    def read(self) -> ServiceSnapshot:
        world = self.wires.world
        return self.wires.call(world.stale if self.wires.met("stale") else world.read)

    def write(self, desired: DesiredModel, expected: str) -> None:
        def effect() -> None:
            self.wires.world.write(desired, expected)

        self.wires.call(effect, effect)


class _Evidence:
    def __init__(self, wires: Wires) -> None:
        self.wires = wires

    def since(self, canary: str, stable: str, after: float | None) -> Window | None:
        return self.wires.measured(after)


class _Releases:
    def __init__(self, wires: Wires) -> None:
        self.wires = wires

    def prove(self, uri: str) -> Proof:
        known = uri == CANARY_URI
        return self.wires.call(lambda: Proof(f"{2 if known else 1:064x}", ("c" if known else "b") * 64, ()))
