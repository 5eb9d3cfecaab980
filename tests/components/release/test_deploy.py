"""Deploying: the lineage walked first, one rollout at a time, and the same again changes nothing."""

import copy
import shutil
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from components.release.deploy.config import DeployConfig
from components.release.deploy.next_rollout import decide_rollout
from components.release.deploy.stage import deploy, to_markdown
from components.training.ppo.adapters import write_adapter
from qinglan.errors import AlteredError, ConfigError, ConflictError, DataError, GateHeldError, IncompleteAuditError
from qinglan.files.digests import digest
from qinglan.kubernetes.model_rollouts import Object
from qinglan.lineage.auditing.audit import audit_target
from qinglan.lineage.auditing.audit_targets import open_target
from qinglan.lineage.auditing.deploy_gate import break_glass, may_serve
from qinglan.lineage.release.release_address import parse_release_uri
from qinglan.lineage.signing.keys import load_signer
from qinglan.lineage.trace.name_moves import sign_with
from qinglan.store import open_store
from serving.rollout.cluster.first_inference_service import first_inference_service
from tests.releases.registered_release import NAME, SignedRelease, tiny_weights, use_keys
from tests.releases.whole_release import make_whole_release


class Rollouts:
    """The API server, as far as names go; `taken` are made by somebody else between our look and our write."""

    def __init__(self, *taken: Object) -> None:
        self.objects: list[Object] = []
        self.taken = list(taken)
        self.creates = 0

    def all(self) -> list[Object]:
        return copy.deepcopy(self.objects)

    def create(self, rollout: Object) -> bool:
        self.creates += 1
        if self.taken:
            self.objects.append(self.taken.pop())
        if rollout["metadata"]["name"] in {existing["metadata"]["name"] for existing in self.objects}:
            return False
        self.objects.append(rollout)
        return True

    def end(self, outcome: str, *reasons: str) -> None:
        status = {"outcome": outcome, "phase": "Done", "reasons": list(reasons)}
        self.objects[-1] = {**self.objects[-1], "status": status}


@pytest.fixture(scope="module")
def signed(tmp_path_factory: pytest.TempPathFactory) -> SignedRelease:
    folder = tmp_path_factory.mktemp("made")
    with pytest.MonkeyPatch.context() as patch:
        return make_whole_release(folder / "made", use_keys(folder / "keys", patch))


@pytest.fixture
def other(signed: SignedRelease, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SignedRelease:
    return make_whole_release(tmp_path / "other", use_keys(signed.keys, monkeypatch), first=0.25)


@pytest.fixture
def store(signed: SignedRelease, tmp_path: Path) -> Path:
    pushed(signed.folder, tmp_path / "store")
    return tmp_path / "store"


def pushed(release: Path, store: Path) -> None:
    open_store(str(store)).push(release, digest(release))


def config(store: Path, **more: Any) -> DeployConfig:
    return DeployConfig(name=NAME, store=str(store), namespace="qinglan", **more)


def test_a_note_that_is_not_what_was_laid_there_closes_no_door_and_the_audit_names_it(
    signed: SignedRelease, store: Path
) -> None:
    opened = open_store(str(store))
    opened.point(NAME, digest(signed.folder), None, "gate", sign_with(load_signer("releaser", signed.keys)))
    opened.backend.create(f"notes/{digest(signed.folder)}/break-glass-0000", b"garbage")

    with open_target(NAME, str(store)) as target:
        assert may_serve(target, signed.policy, NAME).allowed
        findings = audit_target(target, signed.policy).findings

    assert [(finding.what, finding.state) for finding in findings] == [("note break-glass-0000", "altered")]
    assert deploy(signed.folder, config(store), signed.policy, Rollouts()).release


def test_a_proven_release_becomes_a_rollout_that_names_run_digest_and_verdict(
    signed: SignedRelease, store: Path
) -> None:
    rollouts = Rollouts()

    done = deploy(signed.folder, config(store, rollout={"steps": [10, 100]}), signed.policy, rollouts)

    [rollout] = rollouts.objects
    spec, release = rollout["spec"], signed.registered.release
    assert rollout["metadata"]["name"] == done.rollout == "rewriter-1"
    assert "annotations" not in rollout["metadata"]
    assert spec["release"]["digest"] == release and spec["release"]["model"] == signed.registered.model
    assert parse_release_uri(spec["release"]["uri"]) == (str(store), release, False)
    assert spec["steps"] == [10, 100] and len(spec["verdict"]) == 64
    assert release[:12] in done.message and "rewriter-1" in to_markdown(done, config(store))


@pytest.mark.slow
def test_a_server_with_the_base_is_given_the_adapter_alone(
    signed: SignedRelease, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch

    sides = {f"base_model.model.q_proj.lora_{side}.weight": torch.ones(1, 1) for side in "AB"}
    write_adapter(tiny_weights(tmp_path / "model") / "adapter", sides, "0" * 64)
    released = make_whole_release(tmp_path / "made", use_keys(signed.keys, monkeypatch), model=tmp_path / "model")
    pushed(released.folder, tmp_path / "store")
    rollouts = Rollouts()

    deploy(released.folder, config(tmp_path / "store", adapter=True), signed.policy, rollouts)

    assert rollouts.objects[0]["spec"]["release"]["uri"].endswith(f"{released.registered.release}/model/adapter")


def test_a_release_without_an_adapter_begins_no_rollout_on_a_server_with_the_base(
    signed: SignedRelease, store: Path
) -> None:
    rollouts = Rollouts()

    with pytest.raises(ConfigError, match=r"no adapter, and base-vllm serves an adapter .*-vllm-full, namesp"):
        deploy(signed.folder, config(store, adapter=True, runtime="base-vllm"), signed.policy, rollouts)

    assert not rollouts.creates
    assert deploy(signed.folder, config(store, runtime="base-vllm"), signed.policy, rollouts).rollout


def test_the_same_again_changes_nothing(signed: SignedRelease, store: Path) -> None:
    rollouts = Rollouts()
    first = deploy(signed.folder, config(store), signed.policy, rollouts)
    for outcome in ("", "Promoted"):
        rollouts.end(outcome)
        again = deploy(signed.folder, config(store, rollout={"steps": [50, 100]}), signed.policy, rollouts)
        assert again.rollout == first.rollout and "nothing to do" in again.message
    assert rollouts.creates == 1


def test_another_rollout_that_is_under_way_is_named(signed: SignedRelease, other: SignedRelease, store: Path) -> None:
    rollouts = Rollouts()
    pushed(other.folder, store)
    deploy(signed.folder, config(store), signed.policy, rollouts)
    rollouts.objects[0] = {**rollouts.objects[0], "status": {"phase": "Analyse", "percent": 20}}

    with pytest.raises(
        ConflictError, match=r"rewriter-1 is bringing .* to rewriter \(Analyse, 20 % of the traffic\)"
    ):
        deploy(other.folder, config(store), signed.policy, rollouts)
    rollouts.end("Promoted")
    assert deploy(other.folder, config(store), signed.policy, rollouts).rollout == "rewriter-2"
    rollouts.end("RolledBack")
    assert deploy(signed.folder, config(store), signed.policy, rollouts).rollout == "rewriter-3", "back to the first"


@pytest.mark.parametrize("outcome", ["RolledBack", "Refused", "Aborted"])
def test_a_release_that_was_rolled_back_is_not_deployed_again_by_itself(
    signed: SignedRelease, store: Path, outcome: str
) -> None:
    rollouts = Rollouts()
    deploy(signed.folder, config(store), signed.policy, rollouts)
    rollouts.end(outcome, "errors: 3.1 % against 0.4 %")

    with pytest.raises(
        GateHeldError, match=rf"rewriter-1 has tried this release, and ended {outcome}: errors: 3\.1 %"
    ):
        deploy(signed.folder, config(store), signed.policy, rollouts)
    assert rollouts.creates == 1


def test_of_two_deploys_at_once_one_gets_the_name_and_the_other_looks_again(
    signed: SignedRelease, store: Path
) -> None:
    """Somebody else's rollout of the same number comes between our look and our write."""
    other_rollouts = Rollouts()
    deploy(signed.folder, config(store), signed.policy, other_rollouts)
    stranger = copy.deepcopy(other_rollouts.objects[0])
    stranger["spec"]["release"]["uri"] = f"{store}/releases/{'9' * 64}"

    with pytest.raises(ConflictError, match="rewriter-1 is bringing"):
        deploy(signed.folder, config(store), signed.policy, Rollouts(stranger))
    same = Rollouts(other_rollouts.objects[0])
    assert "on its way" in deploy(signed.folder, config(store), signed.policy, same).message
    assert len(same.objects) == 1


@pytest.mark.slow
def test_missing_lineage_is_listed_and_no_rollout_is_written(
    signed: SignedRelease, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lacking = make_whole_release(tmp_path / "lacking", use_keys(signed.keys, monkeypatch), without="validate")
    pushed(lacking.folder, tmp_path / "store")
    rollouts = Rollouts()

    with pytest.raises(
        IncompleteAuditError, match=r"may not be deployed:(\n.*)*no statement of validate is in its chain"
    ):
        deploy(lacking.folder, config(tmp_path / "store"), signed.policy, rollouts)
    assert rollouts.creates == 0

    break_glass(lacking.registered.release, str(tmp_path / "store"), (), signed.policy, "the shop is down", "Li")
    done = deploy(lacking.folder, config(tmp_path / "store"), signed.policy, rollouts)
    assert done.override == "Li: the shop is down" and rollouts.creates == 1


def test_altered_bytes_pass_under_no_glass(signed: SignedRelease, tmp_path: Path) -> None:
    release = shutil.copytree(signed.folder, tmp_path / "release")
    (release / "report.html").write_text("<!doctype html>better")
    pushed(release, tmp_path / "store")

    with pytest.raises(AlteredError, match=r"report\.html: altered"):
        deploy(release, config(tmp_path / "store"), signed.policy, Rollouts())


def test_a_release_of_another_name_or_that_no_pod_could_fetch_is_refused(
    signed: SignedRelease, other: SignedRelease, store: Path, tmp_path: Path
) -> None:
    with pytest.raises((AlteredError, IncompleteAuditError), match="this is a release of fivedoctors/rewriter"):
        deploy(signed.folder, DeployConfig(name="chengla/rewriter", store=str(store), namespace="q"), signed.policy,
               Rollouts())  # fmt: skip
    pushed(other.folder, tmp_path / "elsewhere")
    with pytest.raises(DataError, match="so that no pod could fetch it"):
        deploy(signed.folder, config(tmp_path / "elsewhere"), signed.policy, Rollouts())


def test_a_typo_in_the_policy_is_an_error_that_names_it() -> None:
    with pytest.raises(ConfigError, match=r"rollout: no step\. There are: steps"):
        DeployConfig.parse({"name": NAME, "store": "s3://q", "namespace": "q", "rollout": {"step": [5]}}, "deploy")


SPEC: dict[str, Any] = {
    "inferenceService": "rewriter",
    "release": {"name": NAME, "digest": "1" * 64, "uri": f"s3://q/releases/{'1' * 64}", "model": "2" * 64},
}


@pytest.mark.slow
@given(st.lists(st.tuples(st.integers(1, 30), st.sampled_from("rs"), st.sampled_from(["Promoted", "RolledBack"]))))
def test_the_next_number_is_free_and_the_highest(before: list[tuple[int, str, str]]) -> None:
    """Whatever was deleted meanwhile, and whatever other services have."""
    rollouts = [
        {
            "metadata": {"name": f"{service}-{number}"},
            "spec": {"inferenceService": service, "release": {"uri": "s3://q/old", "digest": "3" * 64}},
            "status": {"outcome": outcome},
        }
        for number, service, outcome in ((n, {"r": "rewriter", "s": "style"}[s], o) for n, s, o in before)
    ]  # fmt: skip
    result = decide_rollout(rollouts, "qinglan", SPEC)

    highest = max((number for number, service, _ in before if service == "r"), default=0)
    assert result.name == f"rewriter-{highest + 1}" and result.create is not None


TAGGED = {"serving.kserve.io/enable-tag-routing": "true"}


@pytest.mark.parametrize(
    ("mode", "annotations"),
    [
        ("Serverless", {"serving.kserve.io/deploymentMode": "Knative"} | TAGGED),
        ("Standard", {"serving.kserve.io/deploymentMode": "Standard", "serving.kserve.io/autoscalerClass": "none"}),
        ("Auto", TAGGED),
    ],
)
def test_the_first_service_names_the_release_and_verifies_it_as_it_downloads(
    mode: str, annotations: dict[str, str]
) -> None:
    predictor = {"runtime": "qinglan-rewriter-cpu", "format": "qinglan-rewriter", "minReplicas": 2, "maxReplicas": 4}
    rollout = {"metadata": {"name": "rewriter-1", "namespace": "qinglan"}, "spec": {**SPEC, "mode": mode}}
    rollout["spec"] = {**SPEC, "mode": mode, "predictor": predictor}

    service = first_inference_service(rollout)

    assert service["metadata"]["annotations"] == annotations
    predictor = service["spec"]["predictor"]
    assert (
        predictor["model"]["storageUri"] == SPEC["release"]["uri"]
        and predictor["storageContainerName"] == "qinglan-release"
    )
    assert (predictor["minReplicas"], predictor["maxReplicas"]) == (2, 4)
    assert ("lifecycle" in predictor["model"]) is (mode == "Standard"), "Knative has no such field"
