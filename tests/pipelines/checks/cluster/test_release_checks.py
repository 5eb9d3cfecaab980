"""Causes that would stop a run hours after its start are named before it: rights, the rollout, the store."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from pipelines.checks.checks import Check
from pipelines.checks.cluster.cluster_checks import check_requirements, shared_namespace_checks
from pipelines.checks.cluster.cluster_reader import KFP_PERMISSIONS, ROLLOUT_PERMISSIONS
from pipelines.checks.cluster.cluster_snapshot import ClusterSnapshot, StoreAnswer
from pipelines.checks.cluster.graph import read_graph
from pipelines.checks.cluster.requirements import (
    ImportedInputs,
    ReleaseStore,
    RequiredObject,
    Requirements,
    RolloutTarget,
    read_requirements,
)
from pipelines.graph.compiler import compile_targets, target_of
from pipelines.lines.config import CONFIGS
from qinglan.config import load_yaml

STORE = ReleaseStore("s3://qinglan/fivedoctors", ("register", "deploy"), "qinglan-store")
TARGET = RolloutTarget("serving", ("deploy",))
WHOLE = frozenset({"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_REGION", "QINGLAN_S3_ENDPOINT"})
HERE: dict[str, Any] = {"rollout_kinds": frozenset({"modelrollouts"}), "stores": {"qinglan-store": WHOLE}}


def deploy_checks(inputs: tuple[ImportedInputs, ...] = (), **changes: Any) -> list[Check]:
    """Check a run that deploys, in a cluster that has everything except `changes`."""
    needs = Requirements((), (), (), "pipeline-runner", inputs, (TARGET,), (STORE,))
    return check_requirements(needs, ClusterSnapshot("team", {}, **{**HERE, **changes}))


def test_where_all_is_there_nothing_is_said() -> None:
    assert deploy_checks() == []


def test_a_cluster_that_knows_no_rollouts_is_named() -> None:
    [finding] = deploy_checks(rollout_kinds=frozenset())

    assert (
        "deploy would create a ModelRollout, and this cluster does not know modelrollouts.qinglan.dev" in finding.what
    )
    assert "kubectl apply --server-side -k manifests/platform" in finding.command


def test_a_namespace_of_rollouts_that_is_not_there_is_named() -> None:
    [finding] = deploy_checks(absent_namespaces=frozenset({"serving"}))

    assert "deploy would create a ModelRollout in namespace serving, which is not there" in finding.what


def test_rights_that_deploying_lacks_are_named_with_the_role_for_the_account_of_the_run() -> None:
    [finding] = deploy_checks(rollout_denied={"serving": ROLLOUT_PERMISSIONS})

    what = "pipeline-runner in namespace team may not create, get, list modelrollouts in namespace serving"
    assert what in finding.what and "deploy would fail" in finding.what
    role, binding = json.loads(finding.command.partition("<<< '")[2].removesuffix("'"))["items"]
    assert role["rules"] == [right.rule for right in ROLLOUT_PERMISSIONS]
    assert (role["metadata"]["namespace"], binding["subjects"][0]["namespace"]) == ("serving", "team")


def test_rights_that_every_pod_of_kfp_takes_are_named_with_the_object() -> None:
    [finding] = deploy_checks(kfp_denied=KFP_PERMISSIONS)

    assert "may not create, patch workflowtaskresults; get configmaps kfp-launcher: KFP's driver" in finding.what
    role, _ = json.loads(finding.command.partition("<<< '")[2].removesuffix("'"))["items"]
    assert role["rules"][1]["resourceNames"] == ["kfp-launcher"]


@pytest.mark.parametrize("store", [None, frozenset({"AWS_ACCESS_KEY_ID"})])
def test_a_store_without_its_secret_or_keys_is_named(store: frozenset[str] | None) -> None:
    [finding] = deploy_checks(stores={"qinglan-store": store})

    assert "register and deploy could not reach s3://qinglan/fivedoctors" in finding.what
    assert "AWS_SECRET_ACCESS_KEY" in finding.command and "QINGLAN_S3_ENDPOINT" in finding.command


def test_a_store_that_may_not_be_looked_at_is_no_finding() -> None:
    assert deploy_checks(stores={}) == []


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (StoreAnswer("absent", "the store has no such bucket"), "the store has no such bucket"),
        (StoreAnswer("refused", "http://x:9 refuses the key (AccessDenied)"), "refuses the key (AccessDenied)"),
    ],
)
def test_what_a_store_answers_is_named_for_releases_and_for_inputs(answer: StoreAnswer, message: str) -> None:
    inputs = (ImportedInputs(("gs://data/q.xlsx",), ("generate",), "qinglan-store"),)

    of_input, of_release = deploy_checks(inputs, answers={STORE.address: answer, "gs://data/q.xlsx": answer})

    assert of_release.what.startswith("s3://qinglan/fivedoctors cannot be read") and message in of_release.what
    assert of_input.what.startswith("gs://data/q.xlsx cannot be read") and "generate would fail" in of_input.what


def test_a_store_that_is_silent_here_is_no_finding() -> None:
    assert deploy_checks(answers={STORE.address: StoreAnswer("silent", "x")}) == []


@pytest.mark.parametrize(("guarded", "message"), [(False, True), (True, False), (None, False)])
def test_a_kfp_of_one_namespace_that_the_manifests_did_not_make_is_noted(guarded: bool | None, message: bool) -> None:
    notes = list(shared_namespace_checks(ClusterSnapshot("kubeflow", {}, guarded=guarded)))

    assert bool(notes) is message
    assert all("pods run in kubeflow" in note.what and note.state == "warning" for note in notes)


def test_trust_is_a_file_beside_the_keys(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    folder = tmp_path / "my keys"
    monkeypatch.setenv("QINGLAN_KEYS", str(folder))
    need = RequiredObject("ConfigMap", "qinglan-trust", frozenset({"trust.yaml"}), ("deploy",))
    absent: dict[tuple[str, str], frozenset[str] | None] = {("ConfigMap", "qinglan-trust"): None}

    [finding] = check_requirements(Requirements((need,), (), (), "x"), ClusterSnapshot("team", absent))

    assert f"create configmap qinglan-trust --from-file='{folder}/trust.yaml'" in finding.command


@pytest.mark.slow
def test_a_profile_that_deploys_asks_for_its_namespace_and_its_store(tmp_path: Path) -> None:
    profile, where = tmp_path / "deployed.yaml", {"namespace": "serving"}
    settings = load_yaml(CONFIGS / "fivedoctors/gpt.yaml") | {"register": {"store": STORE.address}, "deploy": where}
    profile.write_text(yaml.safe_dump(settings))
    [path] = compile_targets([target_of("fivedoctors", str(profile), "")], tmp_path, {})

    needs = read_requirements(read_graph(path), {"questions": "s3://d/q", "knowledge_base": "s3://d/k"}, "runner")

    assert needs.rollouts == (TARGET,) and needs.releases == (STORE,)
