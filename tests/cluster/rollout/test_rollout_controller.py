"""The rollout's controller on a real control plane: promotions, rollbacks, and whatever happens meanwhile."""

import json
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, get_args

import pytest

from qinglan.kubernetes.informer import Informer
from qinglan.lineage.release.release_notes import CheckedRollout, RolloutStatement, read_rollout_notes
from qinglan.store import open_store
from serving.rollout.canary_analysis import missing_evidence
from serving.rollout.cluster.ledger import parse_rollout
from serving.rollout.state import Phase
from tests.cluster.rollout.rollout_world import (
    NS,
    PER_SECOND,
    SERVICE,
    House,
    Model,
    World,
    kill,
    some_looks,
    start_controller,
)
from tests.cluster.servers import stop
from tests.cluster.waiting import until

ACTIONS = ["verify", "apply", "ready", "step", "pass", "step", "pass", "promote", "Promoted"]


@pytest.fixture(scope="class")
def leader(rollouts: House) -> Iterator["subprocess.Popen[bytes]"]:
    """For tests that leave it alone: what it is asked to do is each time another's."""
    process = start_controller(rollouts, "leader")
    yield process
    stop(process)


@pytest.mark.usefixtures("leader")
class TestOneController:
    def test_a_first_model_and_then_a_better_one_are_brought_to_everybody(self, world: World) -> None:
        first = world.ended(world.start(world.stable))

        assert first["outcome"] == "Promoted" and "nothing was compared" in first["reasons"][0]
        assert world.traffic() == {world.stable.uri: 100}

        name = world.start(world.canary, 2)
        done = world.ended(name)

        assert done["outcome"] == "Promoted", done
        assert world.desired() == (world.canary.uri, None) and world.traffic() == {world.canary.uri: 100}
        assert [entry["action"] for entry in done["history"]] == ACTIONS
        until_told(world, name)
        statement = until_kept(world, world.canary)
        assert (statement.outcome, statement.service) == ("Promoted", SERVICE) and statement.stable[
            "uri"
        ] == world.stable.uri
        assert [entry["action"] for entry in statement.history] == [entry["action"] for entry in done["history"]]

    def test_a_pause_holds_the_canary_and_an_abort_takes_it_back(self, world: World) -> None:
        world.players.per_second = 0.0  # so that it stays at its first share until it is paused
        world.serve(world.stable)
        name = world.start(world.canary, 2)
        world.has_share(name, 20)
        world.say(name, paused=True)
        world.players.per_second = PER_SECOND
        until(lambda: earned(world, name), "its next share is earned")
        some_looks()

        assert world.status(name)["phase"] == "Analyse" and world.desired() == (world.canary.uri, 20)
        world.say(name, paused=False, abort=True)
        done = world.ended(name)
        assert done["outcome"] == "Aborted" and world.traffic() == {world.stable.uri: 100}

    def test_a_canary_whose_pods_never_come_gets_no_user_and_is_taken_back(self, world: World) -> None:
        """Nor do the restored pods: it ends without them, for the pods of before serve everybody."""
        world.serve(world.stable)
        with cordoned(world):
            done = world.ended(world.start(world.canary, 2, deadlineSeconds=10))

            assert done["outcome"] == "RolledBack", done
            assert done["reasons"][0].startswith("undecided after"), done["reasons"]
            assert "its new pods are not ready after" in done["reasons"][-1], done["reasons"]
            assert world.traffic() == {world.stable.uri: 100}

    def test_on_the_way_back_the_share_stays_0_until_the_restored_pods_come(self, world: World) -> None:
        world.serve(world.stable)
        with cordoned(world):
            name = world.start(world.canary, 2)
            until(lambda: world.desired() == (world.canary.uri, 0), "the canary is asked for")
            world.say(name, abort=True)
            until(lambda: world.desired() == (world.stable.uri, 0), "the stable model is asked for at 0 %")
            some_looks()
            assert world.desired() == (world.stable.uri, 0) and world.traffic().get(world.canary.uri, 0) == 0

        done = world.ended(name)
        assert done["outcome"] == "Aborted" and world.desired() == (world.stable.uri, None)

    def test_in_standard_mode_a_canary_is_refused_and_nothing_is_changed(self, world: World) -> None:
        first = world.ended(world.start(world.stable, mode="Standard"))
        assert first["outcome"] == "Promoted", first
        before = world.service()["metadata"]["generation"]
        done = world.ended(world.start(world.canary, 2, mode="Auto"))

        assert done["outcome"] == "Refused" and any("sends them no traffic" in reason for reason in done["reasons"])
        assert world.service()["metadata"]["generation"] == before

    def test_a_release_that_was_altered_in_the_store_is_refused(self, world: World) -> None:
        spoiled = {**world.canary.release, "model": "0" * 64}
        done = world.ended(world.start(world.canary, release=spoiled))

        assert done["outcome"] == "Refused" and any("its model is" in reason for reason in done["reasons"])
        assert not world.service()

    def test_a_foreign_edit_under_way_is_named_and_taken_back(self, world: World) -> None:
        world.players.per_second = 0.0  # so that it stays at its first share
        world.serve(world.stable)
        name = world.start(world.canary, 2)
        world.has_share(name, 20)
        patch = json.dumps({"spec": {"predictor": {"canaryTrafficPercent": 90}}})
        world.kubectl.must("patch", "isvc", "rewriter", "-n", NS, "--type=merge", f"-p={patch}",
                           "--field-manager=a-person", account=f"{NS}/qinglan-rollout")  # fmt: skip
        done = world.ended(name)

        why, _, _ = done["reasons"][0].partition(" changed what is served")
        assert done["outcome"] == "RolledBack" and "a-person" in why.split(" or ")
        assert world.traffic() == {world.stable.uri: 100}

    def test_where_one_is_deleted_the_next_has_its_turn_and_its_name_may_be_taken_again(self, world: World) -> None:
        world.serve(world.stable)
        held, waiting = world.start(world.canary, 2, paused=True), world.start(world.first, 3, paused=True)
        world.reached(held, "Apply")
        assert not world.status(waiting)

        world.kubectl.must("delete", "modelrollout", held, "-n", NS)
        world.reached(waiting, "Apply")
        world.say(waiting, abort=True)
        world.ended(waiting)
        world.kubectl.must("delete", "modelrollout", waiting, "-n", NS)
        world.reached(world.start(world.canary, 3, paused=True), "Apply")

        assert world.desired() == (world.stable.uri, None), "nothing was begun"

    def test_a_rollout_whose_status_nobody_can_read_fails_in_words_and_stops_no_other(
        self, world: World, leader: "subprocess.Popen[bytes]"
    ) -> None:
        broken = world.start(world.canary, inferenceService="other", paused=True)
        world.reached(broken, "Promote")
        status = json.dumps({"status": {"nonsense": 1}})
        world.kubectl.must("patch", "modelrollout", broken, "-n", NS, "--subresource=status", "--type=merge",
                           f"-p={status}", account=f"{NS}/qinglan-rollout")  # fmt: skip
        assert world.ended(world.start(world.stable, 2))["outcome"] == "Promoted"

        until(lambda: [event for event in world.events(broken) if event["reason"] == "Failed"], "the failure is told")
        some_looks()
        [event_item] = [event for event in world.events(broken) if event["reason"] == "Failed"]
        assert "nonsense" in event_item["message"] and event_item["type"] == "Warning"
        assert leader.poll() is None


@contextmanager
def cordoned(world: World) -> Iterator[None]:
    """No new pod finds a node."""
    nodes = world.kubectl.must("get", "nodes", "-o", "name").split()
    world.kubectl.must("cordon", *nodes)
    try:
        yield
    finally:
        world.kubectl.must("uncordon", *nodes)


def earned(world: World, name: str) -> bool:
    entry = parse_rollout(world.api.get("modelrollouts", name) or {})
    return not missing_evidence(entry.state, entry.spec)


def until_told(world: World, name: str) -> None:
    """Wait until Kubernetes' events tell the whole history; they follow the status, which ends a rollout."""
    expected = {action[0].upper() + action[1:] for action in ACTIONS}
    until(lambda: {event["reason"] for event in world.events(name)} == expected, f"the events of {name} tell it all")


def until_kept(world: World, model: Model) -> RolloutStatement:
    """A later audit of the release lists its rollout, signed by the controller's key."""
    store = open_store(model.uri.partition("/releases/")[0])
    digest = model.signed.registered.release

    def read_notes() -> list[CheckedRollout]:
        return read_rollout_notes(store.notes(digest), model.signed.policy, digest, "fivedoctors")

    until(lambda: bool(read_notes()), "its history lies beside the release")
    [note] = read_notes()
    assert note.is_trusted, note.why
    return note.statement


PROMOTING = ("Verify", "Apply", "WaitReady", "Analyse", "Promote")


def test_controllers_that_are_killed_on_the_way_up_are_followed_by_one_that_goes_on(world: World) -> None:
    """Each the moment that a state is read; the next has the same name, as a pod's next container has."""
    process = world.controller()
    world.serve(world.stable)
    world.led()
    with heard(world, f"{SERVICE}-2") as phases:
        name = world.start(world.canary, 2)
        for phase in PROMOTING:
            assert phases[phase].wait(240), f"{phase} was never seen: {world.log()[-3000:]}"
            kill(process)
            process = world.controller()
    done = world.ended(name)

    assert done["outcome"] == "Promoted", done["reasons"]
    assert world.desired() == (world.canary.uri, None) and world.traffic() == {world.canary.uri: 100}


def test_a_model_that_fails_more_is_taken_back_on_its_numbers_though_its_controller_is_killed(world: World) -> None:
    first = world.controller()
    world.serve(world.stable)
    world.players.fails[world.canary.version] = 0.3
    with heard(world, f"{SERVICE}-2") as phases:
        name = world.start(world.canary, 2)
        assert phases["Rollback"].wait(240), f"never taken back: {world.log()[-3000:]}"
        kill(first)
    world.controller()
    done = world.ended(name)

    assert done["outcome"] == "RolledBack", done
    assert done["reasons"][0].startswith("errors ") and "worse" in done["reasons"][0]
    assert world.desired() == (world.stable.uri, None) and world.traffic() == {world.stable.uri: 100}


def test_two_controllers_that_both_believe_to_lead_act_as_one(world: World) -> None:
    """The same name, and so the same lease: nothing keeps them apart but the versions that they write at."""
    book = Book(world)
    world.controller("twin")
    world.controller("twin")
    world.serve(world.stable)
    world.led(2)
    done = world.ended(world.start(world.canary, 2))
    requests = book.close()

    assert done["outcome"] == "Promoted", done["reasons"]
    uri = world.canary.uri
    assert requests == [(world.stable.uri, None), (uri, 0), (uri, 20), (uri, 50), (uri, None)]
    assert world.service()["metadata"]["generation"] == len(requests), "each was asked for once"
    actions = [entry["action"] for entry in done["history"]]
    assert [action for action in actions if action != "blind"] == ACTIONS


def test_a_standby_controller_takes_over_a_released_and_an_expired_lease(world: World) -> None:
    world.players.per_second = 0.0  # so that it stays at its first share
    first = world.controller("one")
    world.serve(world.stable)
    world.led()
    second = world.controller("two")
    name = world.start(world.canary, 2)
    world.has_share(name, 20)
    assert holder(world) == "one"
    first.terminate()
    assert first.wait(240) == 0
    until(lambda: holder(world) == "two", "the second leads")

    kill(second)
    world.controller("three")
    world.players.per_second = PER_SECOND
    done = world.ended(name)

    assert done["outcome"] == "Promoted", done["reasons"]
    assert holder(world) == "three", "nobody gave it back: it ran out"


def holder(world: World) -> str:
    return str((world.api.get("leases", "qinglan-rollout") or {})["spec"]["holderIdentity"])


class Book:
    """Every change of what the InferenceService asks for, as the API server tells of it."""

    def __init__(self, world: World) -> None:
        self.requests: list[tuple[str, int | None]] = []
        self._informer = Informer(world.api, "inferenceservices", {}, self._hear)
        self._informer.start()

    def close(self) -> list[tuple[str, int | None]]:
        self._informer.stop()
        return self.requests

    def _hear(self, what: str, service: Any) -> None:
        predictor = service["spec"]["predictor"]
        request = predictor["model"]["storageUri"], predictor.get("canaryTrafficPercent")
        if self.requests[-1:] != [request]:
            self.requests.append(request)


@contextmanager
def heard(world: World, name: str) -> Iterator[dict[str, threading.Event]]:
    """Return for each phase if the rollout was ever in it: looking now and then would miss short ones."""
    phases = {phase: threading.Event() for phase in get_args(Phase)}

    def hear(_: str, rollout: Any) -> None:
        if rollout["metadata"]["name"] == name:
            phases[(rollout.get("status") or {}).get("phase", "Verify")].set()

    informer = Informer(world.api, "modelrollouts", {}, hear)
    informer.start()
    try:
        yield phases
    finally:
        informer.stop()
