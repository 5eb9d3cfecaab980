"""Hypothesis plays the world against the machine: looks, deaths, edits and faults in any order that it thinks of."""

from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from benchmarks.rollout.faults import Chances, Edit, Faults, Schedule
from benchmarks.rollout.models import Model, Onset, Rates, Traffic
from benchmarks.rollout.simulate import ending, guarded, shipped
from benchmarks.rollout.wires import Wires, spec_of
from benchmarks.rollout.world import CANARY_URI, FOREIGN_URI, STABLE_URI, World
from serving.rollout.state import DesiredModel

QUIET = Chances(0, 0, 0, 0, 0, 0, 0)
RATES = {"errors": 0.005, "slow": 0.03, "fallbacks": 0.02, "zero_hits": 0.08, "costly": 0.05, "quality": 0.5}
KINDS = ("equal", "failing", "late", "crashing")


def schedule(kind: str, seed: int, restore: bool) -> Schedule:
    bad = RATES | {"errors": 0.08 if kind in ("failing", "late") else RATES["errors"]}
    model = Model(kind, Rates(RATES, bad), Onset(20, 60.0) if kind == "late" else None)
    faults = Faults("none", QUIET, (), (), (), (40.0,) * 8, 5.0, restore)
    return Schedule(seed, model, Traffic(40.0, 2.0, 0.0, None, {}), faults)


class Hunting(RuleBasedStateMachine):
    """Whatever happens, no bad model is promoted, and with the faults gone the run ends where it says."""

    @initialize(kind=st.sampled_from(KINDS), seed=st.integers(0, 99), restore=st.booleans())
    def begin(self, kind: str, seed: int, restore: bool) -> None:
        self.world = World(schedule(kind, seed, restore))
        self.wires = Wires(self.world, spec_of(self.world.schedule))
        self.act = shipped(self.wires)

    def chances(self, **chances: float) -> None:
        self.wires.faults = self.wires.faults._replace(chances=QUIET._replace(**chances))

    @rule(looks=st.integers(1, 12))
    def time_passes(self, looks: int) -> None:
        for _ in range(looks):
            self.world.advance(self.world.now + 30)
            guarded(self.act, self.wires)

    @rule(name=st.sampled_from(Chances._fields), chance=st.floats(0.2, 0.8))
    def a_look_meets_faults(self, name: str, chance: float) -> None:
        self.chances(**{name: chance})
        self.wires.rival = lambda: guarded(self.act, self.wires)
        self.time_passes(2)
        self.wires.rival = None
        self.chances()

    @rule(kind=st.sampled_from(["uri", "cleared", "full", "percent", "rest"]))
    def somebody_edits(self, kind: str) -> None:
        if self.wires.state.phase != "Done" and self.world.asks:
            self.world.edits.append(Edit(self.world.now, kind))

    @rule(word=st.sampled_from(["paused", "abort"]), message=st.booleans())
    def a_person_speaks(self, word: str, message: bool) -> None:
        self.wires.spec = self.wires.spec.model_copy(update={word: message})
        self.wires.version += 1

    @invariant()
    def no_bad_model_is_promoted(self) -> None:
        if hasattr(self, "world") and not self.world.schedule.model.good:
            assert not self.world.promoted, self.wires.state.history

    def teardown(self) -> None:
        if not hasattr(self, "world"):
            return
        self.wires.spec = self.wires.spec.model_copy(update={"paused": False})
        for _ in range(600):
            if ending(self.wires.state):
                break
            self.time_passes(1)
        outcome = ending(self.wires.state)
        assert outcome, self.wires.state.history
        self.home(outcome)

    def home(self, outcome: str) -> None:
        home: Any = CANARY_URI if outcome == "Promoted" else STABLE_URI
        self.world.edits.clear()
        self.time_passes(8)
        if self.world.asks:
            assert self.world.desired == DesiredModel(uri=home), (outcome, self.wires.state.history)
            assert self.world.shares == {home: 100} and FOREIGN_URI not in self.world.shares


Hunting.TestCase.settings = settings(max_examples=40, stateful_step_count=25, suppress_health_check=list(HealthCheck))
TestHunting = pytest.mark.slow(Hunting.TestCase)
