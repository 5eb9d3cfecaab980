"""A KServe of plain data in Knative mode, its users, and what is counted of them.

It does what KServe 0.20 does with a share: the newest *ready* revision gets it, so that an unready canary's share is
answered by the old model; a cleared share promotes whatever is newest and ready; a share of 0 on a rolled out
revision gives the traffic back to the one before.
"""

from collections import deque
from collections.abc import Callable
from math import pi, sin
from typing import NamedTuple

import numpy as np

from benchmarks.rollout.faults import Edit, Schedule
from benchmarks.rollout.models import CHECKS, COSTLY, TIES, WAVE
from qinglan.errors import ConflictError
from serving.rollout.ports import Revision, ServiceSnapshot
from serving.rollout.state import DesiredModel

TICK = 10.0
STABLE_URI, CANARY_URI, FOREIGN_URI = "store://stable", "store://canary", "store://foreign"
TRAFFIC_CHECKS = CHECKS[:-2]
WIDTH = 2 + 2 * len(TRAFFIC_CHECKS) + 2 + 2
"""Numbers in a row of counters: requests of canary and stable, their failures by check, shadow pairs untied and lost,
and of both models the questions that cost too much."""


class Pods(NamedTuple):
    name: str
    uri: str
    rest: str
    ready_at: float


class Moment(NamedTuple):
    """How the users' traffic was shared from `at` on, and whose request did it."""

    at: float
    canary: int
    foreign: int
    by: str


class World:
    def __init__(self, schedule: Schedule) -> None:
        self.schedule = schedule
        self.random = np.random.default_rng([schedule.seed, 1])
        self.dice = np.random.default_rng([schedule.seed, 3])
        self.now = 0.0
        self.desired, self.rest, self.editor = DesiredModel(uri=STABLE_URI), "rest", "ours"
        self.generation, self.version, self.observed = 1, 1, 1
        self.changed = 0.0
        self.pods = [Pods("rev-1", STABLE_URI, "rest", 0.0)]
        self.rolled_out, self.before = self.pods[0], self.pods[0]
        self.working, self.worked_by = self.desired, self.editor
        self.moments = [Moment(0.0, 0, 0, "ours")]
        self.bad_since: float | None = None
        self.promoted, self.asks = False, 0
        self.late: list[tuple[float, Callable[[], None]]] = []
        self.counters = [np.zeros(WIDTH)]
        self.edits = deque(sorted(schedule.faults.edits))
        self.shares = {STABLE_URI: 100}
        self._armed: float | None = None
        self._known_rates: dict[tuple[bool, bool], np.ndarray] = {}
        self._reads: deque[ServiceSnapshot] = deque(maxlen=4)
        self._last: ServiceSnapshot | None = None

    def write(self, requested: DesiredModel, expected: str | None, by: str = "ours") -> None:
        """Act as the API server: refuse another version than expected, and count the generation."""
        if expected is not None and expected != str(self.version):
            raise ConflictError("the InferenceService was changed meanwhile")
        if by == "ours":
            self.asks += 1
            self.promoted |= requested.uri == CANARY_URI and requested.percent in (None, 100)
        self._change(requested, self.rest, by)

    def _change(self, requested: DesiredModel, rest: str, by: str) -> None:
        self.version += 1
        if (requested, rest) != (self.desired, self.rest):
            self.generation += 1
            self.changed = self.now
            self.editor = by
        self.desired, self.rest = requested, rest

    def read(self) -> ServiceSnapshot:
        newest, traffic = self.pods[-1], dict(self.shares)
        failed = "CrashLoopBackOff" if self._crashing(newest) else ""
        served = ServiceSnapshot(
            resource_version=str(self.version),
            generation=self.generation,
            settled=self.observed == self.generation,
            desired=self.desired,
            rest=self.rest,
            newest=Revision(newest.name, newest.uri, self._ready(newest), failed),
            rolled_out=Revision(self.rolled_out.name, self.rolled_out.uri, True),
            traffic=traffic,
            mode="Serverless",
            editor=self.editor,
        )
        if self._last is not None and served != self._last:
            self._reads.append(self._last)
        self._last = served
        return served

    def stale(self) -> ServiceSnapshot:
        """State of a while ago."""
        now = self.read()
        return self._reads[int(self.random.integers(len(self._reads)))] if self._reads else now

    def advance(self, until: float) -> None:
        while self.now + TICK <= until:
            self.now += TICK
            self._arrive()
            self._reconcile()
            self._serve()

    def _arrive(self) -> None:
        while self.edits and self.edits[0].at <= self.now:
            self._edit(self.edits.popleft())
        due = [write for at, write in self.late if at <= self.now]
        self.late = [(at, write) for at, write in self.late if at > self.now]
        for write in due:
            write()

    def _edit(self, edit: Edit) -> None:
        if edit.kind == "rest":
            self._change(self.desired, f"{self.rest}'", "somebody")
            return
        requested = {
            "uri": DesiredModel(uri=FOREIGN_URI, percent=self.desired.percent),
            "cleared": DesiredModel(uri=self.desired.uri),
            "full": DesiredModel(uri=self.desired.uri, percent=100),
            "percent": DesiredModel(uri=self.desired.uri, percent=30),
        }[edit.kind]
        self.write(requested, None, "somebody")

    def _reconcile(self) -> None:
        faults = self.schedule.faults
        if self.observed != self.generation and self.now >= self.changed + faults.reconcile_seconds:
            newest = self.pods[-1]
            if (newest.uri, newest.rest) != (self.desired.uri, self.rest):
                start = faults.start_seconds[len(self.pods) % len(faults.start_seconds)]
                self.pods.append(Pods(f"rev-{len(self.pods) + 1}", self.desired.uri, self.rest, self.now + start))
            self.observed, self.working, self.worked_by = self.generation, self.desired, self.editor
            self.version += 1
        self._roll()
        self._remember()

    def _roll(self) -> None:
        """KServe's own bookkeeping of what was last rolled out."""
        latest, percent = self._latest(), self.working.percent
        if percent in (None, 100):
            if latest != self.rolled_out:
                self.before, self.rolled_out = self.rolled_out, latest
                self.version += 1
        elif latest == self.rolled_out == self.pods[-1]:
            self.rolled_out = self.before
            self.version += 1

    def _remember(self) -> None:
        self.shares = self._traffic()
        moment = Moment(self.now, self.shares.get(CANARY_URI, 0), self.shares.get(FOREIGN_URI, 0), self.worked_by)
        if moment[1:] != self.moments[-1][1:]:
            self.moments.append(moment)

    def _latest(self) -> Pods:
        return next(pods for pods in reversed(self.pods) if self._ready(pods))

    def _ready(self, pods: Pods) -> bool:
        return pods.ready_at <= self.now and not (pods.uri == CANARY_URI and self.schedule.model.crashes)

    def _crashing(self, pods: Pods) -> bool:
        return pods.uri == CANARY_URI and self.schedule.model.crashes and self.now > pods.ready_at

    def _traffic(self) -> dict[str, int]:
        percent = 100 if self.working.percent is None else self.working.percent
        shares: dict[str, int] = {}
        for uri, share in ((self._latest().uri, percent), (self.rolled_out.uri, 100 - percent)):
            shares[uri] = shares.get(uri, 0) + share
        return {uri: share for uri, share in shares.items() if share}

    def _serve(self) -> None:
        """One tick's requests, drawn as binomials, added to the counters of the version that answered."""
        traffic, shares = self.schedule.traffic, self.shares
        swell = 1 + WAVE * sin(2 * pi * self.now / 3600 + traffic.phase)
        requests = int(self.random.poisson(traffic.requests * TICK * swell))
        share = shares.get(CANARY_URI, 0) / 100
        canary = int(self.random.binomial(requests, share)) if share else 0
        stable = round((requests - canary) * shares.get(STABLE_URI, 0) / max(100 - 100 * share, 1))
        shadowed = self.pods[-1].uri == CANARY_URI and self._ready(self.pods[-1])
        pairs = int(self.random.poisson(traffic.pairs * TICK * (1 - TIES))) if shadowed else 0
        of = np.array([canary] * 4 + [stable] * 4 + [pairs])
        rates = self._rates(shares.get(CANARY_URI, 0))
        failed = self.random.binomial(of, rates[:-2]).tolist()
        costly = (self.dice.binomial(count, rate) for count, rate in zip((canary, stable), rates[-2:], strict=True))
        row = np.array([canary, stable, *failed[:-1], pairs, failed[-1], *costly])
        self.counters.append(self.counters[-1] + row)

    def _rates(self, percent: int) -> np.ndarray:
        storm = self.schedule.traffic.storm
        key = self._harmful(percent), storm is not None and storm[0] <= self.now < storm[1]
        if key not in self._known_rates:
            self._known_rates[key] = self._drawn_rates(*key)
        return self._known_rates[key]

    def _drawn_rates(self, harmful: bool, stormy: bool) -> np.ndarray:
        stable, canary = self.schedule.model.rates
        canary = canary if harmful or self.schedule.model.good else stable
        rates = np.array([side[check] for side in (canary, stable) for check in TRAFFIC_CHECKS])
        if stormy:
            raised = np.array([self.schedule.traffic.storm_rates.get(check, 0.0) for check in TRAFFIC_CHECKS] * 2)
            rates = rates + raised * (1 - rates)
        return np.append(rates, (canary["quality"], canary[COSTLY], stable[COSTLY]))

    def _harmful(self, percent: int) -> bool:
        """Tell if a bad model is bad by now; the first time that users met it is kept."""
        model, onset = self.schedule.model, self.schedule.model.onset
        if model.good or model.crashes:
            return False
        if onset and self._armed is None and percent >= onset.percent:
            self._armed = self.now + onset.seconds
        bad = onset is None or (self._armed is not None and self.now >= self._armed)
        if bad and percent and self.bad_since is None:
            self.bad_since = self.now
        return bad
