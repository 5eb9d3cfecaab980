"""Tests of KServe's and Knative's treatment of a traffic share, which the rollout's rules depend on."""

import json
import re
import time
from pathlib import Path

from tests.cluster.rollout.rollout_world import NS, SERVICE, World
from tests.cluster.waiting import until

ROLLOUT = f"{NS}/qinglan-rollout"
README = Path(__file__).parents[3] / "serving/rollout/README.md"


def stays(world: World, traffic: dict[str, int]) -> None:
    """Until KServe and Knative have done what they do, and a moment longer."""
    settled_for = 0
    while settled_for < 10:
        assert world.traffic() == traffic
        settled_for = settled_for + 1 if world.read().settled else 0
        time.sleep(0.1)


def steered(world: World, uri: str, percent: int | None, state: str | None) -> None:
    """As `ask`, and its pods are told what becomes of them."""
    patch = {
        "metadata": {"annotations": {"sim/state": state}},
        "spec": {"predictor": {"canaryTrafficPercent": percent, "model": {"storageUri": uri}}},
    }
    world.patch(patch)


def test_a_new_model_at_0_percent_comes_up_beside_the_old_one_which_keeps_everybody(world: World) -> None:
    world.serve(world.stable)
    world.ask(world.canary.uri, 0)
    until(
        lambda: (revision := world.read().newest) and revision.uri == world.canary.uri and revision.ready,
        "the canary is ready",
    )
    stays(world, {world.stable.uri: 100})
    observed = world.read()

    assert observed.traffic == {world.stable.uri: 100} and observed.desired.percent == 0
    assert observed.rolled_out and observed.rolled_out.uri == world.stable.uri


def test_a_new_model_at_0_percent_does_not_bring_back_the_one_before_the_old_one(world: World) -> None:
    world.serve(world.first)
    world.ask(world.stable.uri, None)
    until(lambda: world.rolled(world.stable), "the second model serves")
    world.ask(world.canary.uri, 0)

    stays(world, {world.stable.uri: 100})
    assert world.read().traffic == {world.stable.uri: 100}


def test_0_percent_on_what_is_rolled_out_brings_back_the_one_before(world: World) -> None:
    world.serve(world.stable)
    world.ask(world.canary.uri, None)
    until(lambda: world.rolled(world.canary), "the second model serves")
    world.ask(world.canary.uri, 0)

    until(lambda: world.traffic() == {world.stable.uri: 100}, "the one before has everybody")
    until(lambda: world.read().settled, "it is settled")
    assert world.read().rolled_out.uri == world.stable.uri  # type: ignore[union-attr]


def test_a_cleared_share_gives_everybody_the_newest_ready_one_which_is_the_bad_one(world: World) -> None:
    """Why the way back keeps a share of 0 until the restored pods are ready."""
    world.serve(world.stable)
    world.ask(world.canary.uri, 20)
    until(lambda: world.traffic() == {world.canary.uri: 20, world.stable.uri: 80}, "the canary has its share")
    steered(world, world.stable.uri, None, "hold")

    until(lambda: world.traffic() == {world.canary.uri: 100}, "the canary has everybody")
    observed = world.read()
    assert observed.newest and observed.newest.uri == world.stable.uri and not observed.newest.ready


def test_an_orphaned_canary_is_left_by_the_readmes_writes(world: World) -> None:
    section = README.read_text().partition("### An orphaned canary")[2].partition("\n### ")[0]
    back, clear = re.findall(r"^k patch isvc rewriter --type merge -p '(.*)'$", section, re.MULTILINE)
    world.serve(world.stable)
    world.ask(world.canary.uri, 20)
    until(lambda: world.traffic() == {world.stable.uri: 80, world.canary.uri: 20}, "the canary has its share")

    patched(world, back.replace("STABLE_URI", world.stable.uri))
    until(
        lambda: (revision := world.read().newest) and revision.uri == world.stable.uri and revision.ready,
        "the pods are ready",
    )
    assert world.traffic() == {world.stable.uri: 100}, "also before the share is cleared"
    patched(world, clear)

    until(lambda: world.rolled(world.stable), "the stable model has everybody for good")
    assert world.read().desired.percent is None, "so that the next rollout is not refused"


def patched(world: World, patch: str) -> None:
    world.kubectl.must("patch", "isvc", SERVICE, "-n", NS, "--type", "merge", "-p", patch, account=ROLLOUT)


def test_a_crashing_canary_is_read_with_its_reason_and_the_old_model_answers_for_it(world: World) -> None:
    world.serve(world.stable)
    steered(world, world.canary.uri, 20, "crash")
    until(lambda: (revision := world.read().newest) and revision.failed, "the crash is told")
    observed = world.read()

    assert observed.newest and observed.newest.uri == world.canary.uri and not observed.newest.ready
    assert world.traffic() == {world.stable.uri: 100}, "whatever share the canary is asked for"


def test_a_foreign_edit_is_told_from_what_kserve_writes_and_named(world: World) -> None:
    world.serve(world.stable)
    before = world.read()
    world.ask(world.canary.uri, 20)
    until(lambda: world.read().settled, "the canary has its share")
    settled = world.read()
    patch = {"spec": {"predictor": {"maxReplicas": 3}}}
    world.kubectl.must("patch", "isvc", SERVICE, "-n", NS, "--type=merge", f"-p={json.dumps(patch)}",
                       "--field-manager=a-person", account=ROLLOUT)  # fmt: skip

    assert before.rest == settled.rest, "model and share are not in it, and KServe changes nothing else"
    assert world.read().rest != settled.rest
    assert "a-person" in world.read().editor.split(" or "), "whoever made it did so perhaps in the same second"
