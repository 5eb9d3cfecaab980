"""The shipped machine in seeded schedules of faults; `make bench-rollout` plays ten thousand."""

from collections.abc import Callable, Iterator
from itertools import islice

import pytest

from benchmarks.rollout.__main__ import failed
from benchmarks.rollout.faults import Schedule, draw
from benchmarks.rollout.models import COSTLY
from benchmarks.rollout.simulate import guarded, play, shipped, simulate
from benchmarks.rollout.wires import Wires, spec_of
from benchmarks.rollout.world import World
from qinglan.errors import ConflictError, OutageError
from serving.rollout import decide, decision_context, reconciler, rollback
from serving.rollout.ports import Ports
from serving.rollout.spec import RolloutSpec
from serving.rollout.state import DesiredModel, State

COUNTEREXAMPLES = {
    2547: "our first write had landed unconfirmed, and an edit over it was taken for one made before we began",
    6406: "the same",
    40469: "the restored stable model was asked for at 0 % after an edit: KServe gave everybody the revision before",
    40562: "the same",
}


@pytest.mark.parametrize("seed", COUNTEREXAMPLES)
def test_schedules_that_once_failed_no_longer_fail(seed: int) -> None:
    run = simulate(seed)

    assert not failed(run), run


@pytest.mark.slow
def test_no_bad_model_is_promoted_and_nearly_every_good_one_is() -> None:
    runs = [simulate(seed) for seed in range(20_000, 20_400)]

    good = [run for run in runs if run.good]
    promoted = sum(run.outcome == "Promoted" for run in good)
    assert [run for run in runs if failed(run)] == []
    assert promoted >= 0.93 * len(good)
    assert not any(run.outcome == "Promoted" for run in runs if not run.good)


def costly(fault: str) -> Iterator[int]:
    """Seeds whose model is bad by its cost alone."""
    kinds = ((seed, item.model.kind, item.faults.kind) for seed in range(20_000, 21_000) for item in (draw(seed),))
    return (seed for seed, *kind in kinds if kind == [COSTLY, fault])


@pytest.mark.parametrize("fault", ["none", "restarts", "metric_gaps"])
def test_a_model_that_is_bad_by_its_cost_alone_is_taken_back_for_it(fault: str) -> None:
    run = simulate(next(costly(fault)))

    assert run.outcome == "RolledBack" and not failed(run)
    assert run.reasons[0].startswith("costly")


def by_default(wires: Wires) -> Callable[[], str]:
    """The policy of a spec that names no checks, where nobody told the controller of a shadow."""
    release, edits = wires.spec.release, wires.spec.foreign_edits
    wires.spec = RolloutSpec(inference_service="rewriter", release=release, foreign_edits=edits)
    return shipped(wires)


def without_pairs(seed: int) -> Schedule:
    schedule = draw(seed)
    return schedule._replace(traffic=schedule.traffic._replace(pairs=0.0))


def undisturbed(good: bool) -> Iterator[int]:
    kinds = ((seed, item.model, item.faults.kind) for seed in range(20_000, 21_000) for item in (draw(seed),))
    shown = ("failing", "slow", "evasive", "empty_handed", COSTLY)
    return (seed for seed, model, fault in kinds if fault == "none" and (model.good if good else model.kind in shown))


def test_without_a_shadow_the_default_policy_promotes_good_models_and_takes_bad_ones_back() -> None:
    good, bad = list(islice(undisturbed(good=True), 3)), list(islice(undisturbed(good=False), 3))

    runs = [play(without_pairs(seed), by_default) for seed in (*good, *bad)]

    assert [run.outcome for run in runs] == ["Promoted"] * 3 + ["RolledBack"] * 3
    assert not any(failed(run) for run in runs)


def test_with_the_check_quality_and_no_shadow_even_a_good_model_is_taken_back() -> None:
    run = play(without_pairs(next(undisturbed(good=True))), shipped)

    assert run.outcome == "RolledBack" and "quality: nothing was measured" in run.reasons


def unfenced(ports: Ports) -> reconciler.ReconcileResult:
    """A machine that asks without the version that it read: the last writer wins."""
    entry, served = ports.ledger.read(), ports.target.read()
    measured = reconciler._read_measurements(ports, entry)
    proofs = reconciler._verify_releases(ports, entry, served)
    facts = decision_context.DecisionContext(entry.spec, entry.state, served, measured, proofs, ports.now())
    decision = decide.decide(facts)
    if decision.desired is not None:
        ports.target.write(decision.desired, ports.target.read().resource_version)
    ports.ledger.write(decision.state, entry.resource_version)
    return "done" if decision.state.phase == "Done" else "acted"


def reckless(ports: Ports) -> reconciler.ReconcileResult:
    try:
        return unfenced(ports)
    except (OutageError, ConflictError):
        return "unreachable"


HOMEWARD = rollback._next_rollback_step


def at_once(now: decision_context.DecisionContext) -> decision_context.Decision:
    """The way back in one write: until its pods are ready, the newest ready revision is the bad one."""
    assert now.state.stable is not None
    home = DesiredModel(uri=now.state.stable.uri)
    return (
        HOMEWARD(now)
        if now.service.desired == home
        else decision_context.request_change(now, home, "back", "at once")
    )


def always(*_: object) -> tuple[str, ...]:
    return ()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("where", "name", "broken"),
    [
        ("benchmarks.rollout.simulate", "reconcile", reckless),
        (decide.__name__, "missing_evidence", always),
        (decide.__name__, "_change_requested", lambda state: False),
        (rollback.__name__, "_next_rollback_step", at_once),
    ],
    ids=["acts before it writes down", "asks for no proof", "forgets what it began", "clears the share at once"],
)
def test_the_simulator_notices_a_broken_machine(
    where: str, name: str, broken: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(f"{where}.{name}", broken)

    assert any(failed(simulate(seed)) for seed in range(30_000, 30_400))


def test_the_state_survives_the_way_through_kubernetes() -> None:
    wires = Wires(World(draw(108)), spec_of(draw(108)))
    act, at = shipped(wires), 20.0
    while wires.state.phase != "Done":
        wires.world.advance(at)
        at += guarded(act, wires)
        assert State.model_validate_json(wires.state.model_dump_json(by_alias=True)) == wires.state
