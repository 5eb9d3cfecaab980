"""Causes that would stop a run hours after its start are named before it: rights, the rollout, the store."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from pipelines.checks.checks import Check
from pipelines.checks.cluster.cluster_checks import check_requirements, shared_namespace_checks
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


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"rollout_kinds": frozenset()}, "modelrollouts.qinglan.dev"),
        ({"absent_namespaces": frozenset({"serving"})}, "namespace serving"),
        ({"stores": {"qinglan-store": None}}, STORE.address),
        ({"stores": {"qinglan-store": frozenset({"AWS_ACCESS_KEY_ID"})}}, "AWS_SECRET_ACCESS_KEY"),
        ({"answers": {STORE.address: StoreAnswer("absent", "no such bucket")}}, "no such bucket"),
        ({"answers": {STORE.address: StoreAnswer("refused", "AccessDenied")}}, "AccessDenied"),
    ],
)
def test_what_would_stop_the_last_steps_is_an_error(changes: dict[str, Any], named: str) -> None:
    [finding] = deploy_checks(**changes)

    assert finding.state == "error" and named in finding.what


@pytest.mark.parametrize("changes", [{"stores": {}}, {"answers": {STORE.address: StoreAnswer("silent", "x")}}])
def test_a_store_that_cannot_be_looked_at_from_here_is_no_finding(changes: dict[str, Any]) -> None:
    assert deploy_checks(**changes) == []


def test_an_input_that_the_key_may_not_read_is_an_error() -> None:
    inputs = (ImportedInputs(("gs://data/q.xlsx",), ("generate",), "qinglan-store"),)

    [finding] = deploy_checks(inputs, answers={"gs://data/q.xlsx": StoreAnswer("refused", "AccessDenied")})

    assert finding.what.startswith("gs://data/q.xlsx cannot be read")


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
