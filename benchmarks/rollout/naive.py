"""The usual script: every few minutes, if it is Ready and the error rate is low now, a larger share."""

import math

from benchmarks.rollout.wires import Wires
from benchmarks.rollout.world import CANARY_URI, STABLE_URI
from qinglan.errors import ConflictError, OutageError
from serving.rollout.state import DesiredModel, State

INTERVAL = 300.0
THRESHOLD = 0.02
"""Share of failures among the canary's requests since the last look; the stable model fails at most half as many."""


class Naive:
    """Reads the percent from the InferenceService, so that a restart goes on; writes without a version."""

    def __init__(self, wires: Wires) -> None:
        self.wires, self.ports = wires, wires.ports()
        self.due = 0.0
        self.observed: float | None = None

    def reconcile(self) -> str:
        now = self.ports.now()
        if now < self.due or self.wires.state.phase == "Done":
            return "waited"
        try:
            self._step()
        except (OutageError, ConflictError):
            return "unreachable"
        self.due = now + INTERVAL
        return "acted"

    def _step(self) -> None:
        served = self.ports.target.read()
        if served.desired.uri != CANARY_URI:
            self._write(DesiredModel(uri=CANARY_URI, percent=self.wires.spec.steps[0]))
            return
        if served.newest is None or not served.newest.ready:
            return
        if self._error_rate() > THRESHOLD:
            self._write(DesiredModel(uri=STABLE_URI))
            self._done("RolledBack")
            return
        ahead = [step for step in self.wires.spec.steps if step > (served.desired.percent or 0)]
        if served.desired.percent is None or ahead in ([], [100]):
            self._write(DesiredModel(uri=CANARY_URI))
            self._done("Promoted")
            return
        self._write(DesiredModel(uri=CANARY_URI, percent=ahead[0]))

    def _error_rate(self) -> float:
        window = self.ports.count_since("", "", self.observed)
        if window is None:
            return 0.0
        self.observed = window.until
        count = window.canary.get("errors")
        rate = count.failed / count.total if count and count.total else 0.0
        return 0.0 if math.isnan(rate) else rate

    def _write(self, model: DesiredModel) -> None:
        self.wires.call(lambda: self.wires.world.write(model, None), lambda: self.wires.world.write(model, None))

    def _done(self, outcome: str) -> None:
        self.wires.state = State(phase="Done").model_copy(update={"outcome": outcome})
