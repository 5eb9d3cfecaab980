"""What KServe and Knative really do with a share, which the rollout's rules stand on; and how it is read."""

import json
import re
import time
from pathlib import Path

from qinglan.rollouts import first_service, rollout_object
from serving.rollout.cluster.reading import Objects
from serving.rollout.cluster.serving import served
from serving.rollout.ports import Served
from tests.cluster.kubectl import until
from tests.cluster.rollout_world import NS, PREDICTOR, SERVICE, Model, World

ROLLOUT = f"{NS}/qinglan-rollout"
README = Path(__file__).parents[2] / "serving/rollout/README.md"


def create(world: World, model: Model, mode: str = "Serverless") -> None:
    spec = {"inferenceService": SERVICE, "release": model.release, "predictor": PREDICTOR, "mode": mode}
    one = first_service(rollout_object(NS, 1, spec))
    world.kubectl.must("create", "-f", "-", given=[one], account=ROLLOUT)


def read(world: World) -> Served:
    found = world.api.all("revisions", {})["items"]
    return served(Objects(world.service(), {one["metadata"]["name"]: one for one in found}))


def rolled(world: World, model: Model) -> bool:
    seen = read(world)
    newest, rolled_out = seen.newest, seen.rolled_out
    whole = seen.traffic == {model.uri: 100} and newest is not None and newest.ready and newest.uri == model.uri
    return seen.settled and whole and rolled_out is not None and rolled_out.uri == model.uri


def stays(world: World, traffic: dict[str, int], seconds: float = 3.0) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        assert world.traffic() == traffic
        time.sleep(0.1)


def steered(world: World, uri: str, percent: int | None, state: str | None) -> None:
    """As `ask`, and its pods are told what becomes of them."""
    patch = {
        "metadata": {"annotations": {"sim/state": state}},
        "spec": {"predictor": {"canaryTrafficPercent": percent, "model": {"storageUri": uri}}},
    }
    world.kubectl.must("patch", "isvc", SERVICE, "-n", NS, "--type=merge", f"-p={json.dumps(patch)}", account=ROLLOUT)


def test_a_new_model_at_0_percent_comes_up_beside_the_old_one_which_keeps_everybody(world: World) -> None:
    create(world, world.stable)
    until(lambda: rolled(world, world.stable), "the first model serves")
    world.ask(world.canary.uri, 0)
    until(lambda: (one := read(world).newest) and one.uri == world.canary.uri and one.ready, "the canary is ready")
    until(lambda: read(world).settled, "and settled")
    seen = read(world)

    assert seen.traffic == {world.stable.uri: 100} and seen.asked.percent == 0
    assert seen.rolled_out and seen.rolled_out.uri == world.stable.uri
    stays(world, {world.stable.uri: 100})


def test_a_new_model_at_0_percent_does_not_bring_back_the_one_before_the_old_one(world: World) -> None:
    create(world, world.first)
    until(lambda: rolled(world, world.first), "the first model serves")
    world.ask(world.stable.uri, None)
    until(lambda: rolled(world, world.stable), "the second model serves")
    world.ask(world.canary.uri, 0)

    stays(world, {world.stable.uri: 100}, 5.0)
    until(lambda: read(world).settled, "it is settled")
    assert read(world).traffic == {world.stable.uri: 100}


def test_0_percent_on_what_is_rolled_out_brings_back_the_one_before(world: World) -> None:
    create(world, world.stable)
    until(lambda: rolled(world, world.stable), "the first model serves")
    world.ask(world.canary.uri, None)
    until(lambda: rolled(world, world.canary), "the second model serves")
    world.ask(world.canary.uri, 0)

    until(lambda: world.traffic() == {world.stable.uri: 100}, "the one before has everybody")
    until(lambda: read(world).settled, "it is settled")
    assert read(world).rolled_out.uri == world.stable.uri  # type: ignore[union-attr]


def test_a_cleared_share_gives_everybody_the_newest_ready_one_which_is_the_bad_one(world: World) -> None:
    """Why the way back keeps a share of 0 until the restored pods are ready."""
    create(world, world.stable)
    until(lambda: rolled(world, world.stable), "the first model serves")
    world.ask(world.canary.uri, 20)
    until(lambda: world.traffic() == {world.canary.uri: 20, world.stable.uri: 80}, "the canary has its share")
    steered(world, world.stable.uri, None, "hold")

    until(lambda: world.traffic() == {world.canary.uri: 100}, "the canary has everybody")
    seen = read(world)
    assert seen.newest and seen.newest.uri == world.stable.uri and not seen.newest.ready


def test_an_orphaned_canary_is_left_by_the_readmes_writes(world: World) -> None:
    section = README.read_text().partition("### An orphaned canary")[2].partition("\n## ")[0]
    back, clear = re.findall(r"^k patch isvc rewriter --type merge -p '(.*)'$", section, re.MULTILINE)
    create(world, world.stable)
    until(lambda: rolled(world, world.stable), "the first model serves")
    world.ask(world.canary.uri, 20)
    until(lambda: world.traffic() == {world.stable.uri: 80, world.canary.uri: 20}, "the canary has its share")

    patched(world, back.replace("STABLE_URI", world.stable.uri))
    until(lambda: (one := read(world).newest) and one.uri == world.stable.uri and one.ready, "the pods are ready")
    assert world.traffic() == {world.stable.uri: 100}, "also before the share is cleared"
    patched(world, clear)

    until(lambda: rolled(world, world.stable), "the stable model has everybody for good")
    assert read(world).asked.percent is None, "so that the next rollout is not refused"


def patched(world: World, patch: str) -> None:
    world.kubectl.must("patch", "isvc", SERVICE, "-n", NS, "--type", "merge", "-p", patch, account=ROLLOUT)


def test_a_crashing_canary_is_read_with_its_reason_and_the_old_model_answers_for_it(world: World) -> None:
    create(world, world.stable)
    until(lambda: rolled(world, world.stable), "the first model serves")
    steered(world, world.canary.uri, 20, "crash")
    until(lambda: (one := read(world).newest) and one.failed, "the crash is told")
    seen = read(world)

    assert seen.newest and seen.newest.uri == world.canary.uri and not seen.newest.ready
    assert world.traffic() == {world.stable.uri: 100}, "whatever share the canary is asked for"


def test_a_foreign_edit_is_told_from_what_kserve_writes_and_named(world: World) -> None:
    create(world, world.stable)
    until(lambda: rolled(world, world.stable), "the first model serves")
    before = read(world)
    world.ask(world.canary.uri, 20)
    until(lambda: read(world).settled, "the canary has its share")
    ours = read(world)
    patch = {"spec": {"predictor": {"maxReplicas": 3}}}
    world.kubectl.must("patch", "isvc", SERVICE, "-n", NS, "--type=merge", f"-p={json.dumps(patch)}",
                       "--field-manager=a-person", account=ROLLOUT)  # fmt: skip

    assert before.rest == ours.rest, "model and share are not in it, and KServe changes nothing else"
    assert read(world).rest != ours.rest and read(world).editor == "a-person"


def test_a_standard_one_is_refused_with_the_reason(world: World) -> None:
    create(world, world.stable, "Standard")
    seen = read(world)

    assert seen.form == "Standard" and "sends them no traffic" in seen.unsupported
