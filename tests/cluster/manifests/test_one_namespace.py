"""KFP of one namespace: what its own account may do in a tenant's namespace, by the component made for it."""

import shutil
from pathlib import Path

import pytest

from pipelines.checks.cluster.cluster_reader import read_cluster
from pipelines.checks.cluster.requirements import Requirements, RolloutTarget
from tests.cluster.kubectl import Kubectl, rendered
from tests.cluster.plane.cluster import Cluster
from tests.cluster.rollout.test_modelrollout import rollout
from tests.cluster.waiting import until
from tests.manifests.manifest_objects import MANIFESTS

KFP, RUNNER = "kubeflow", "pipeline-runner"


@pytest.fixture
def tenant(api: Kubectl, namespace: str, tmp_path: Path) -> str:
    """A namespace with the component, rendered as a tenant's kustomization renders it."""
    shutil.copytree(MANIFESTS / "one-namespace", tmp_path / "one-namespace")
    folder = tmp_path / "tenant"
    folder.mkdir()
    (folder / "kustomization.yaml").write_text(f"namespace: {namespace}\ncomponents: [../one-namespace]\n")
    answer = api.apply(rendered(folder))
    assert answer.code == 0, answer.text
    return namespace


def test_kfps_account_may_ask_for_a_rollout_there_and_nothing_else(api: Kubectl, tenant: str) -> None:
    account = f"{KFP}/{RUNNER}"
    until(lambda: api.try_to_create(rollout(tenant), account) == "", "the right is known")

    for verb, kind in (
        ("delete", "modelrollouts"), ("get", "secrets"), ("list", "pods"), ("create", "pods"),
        ("create", "inferenceservices"), ("get", "configmaps"), ("create", "pytorchjobs"),
    ):  # fmt: skip
        assert api("auth", "can-i", verb, kind, "-n", tenant, account=account).code == 1, f"{verb} {kind}"


def test_the_preflight_of_a_run_in_kfps_namespace_finds_that_right(
    cluster: Cluster, api: Kubectl, tenant: str
) -> None:
    needs = Requirements((), (), (), RUNNER, (), (RolloutTarget(tenant, ("deploy",)),), ())

    until(lambda: not read_cluster(cluster.admin(), needs, KFP).rollout_denied[tenant], "nothing is denied")


def test_without_the_component_it_may_not(api: Kubectl, namespace: str) -> None:
    assert "forbidden" in api.try_to_create(rollout(namespace), f"{KFP}/{RUNNER}")
