"""Pods of KFP's and Argo's own making meet a real API server: tokens, quota, Pod Security, and what they refer to."""

from typing import Any

import pytest
from kubernetes import client

from pipelines.checks.cluster.cluster_checks import INPUT_KEYS
from pipelines.checks.cluster.graph import read_graph
from pipelines.checks.cluster.requirements import read_requirements
from pipelines.graph.compiler import COMPILED
from pipelines.graph.store_secret import FETCH_ENDPOINT
from pipelines.submit.workflow import NodeProblem, snapshot_of
from tests.cluster.kubectl import Kubectl
from tests.cluster.manifests.kfp_pods import admitted, containers, recorded_pods, without_token
from tests.cluster.plane.cluster import Cluster
from tests.cluster.waiting import until

RUNNER = "pipeline-runner"
LAUNCHER = 2
"""The place of the launcher's pod among those recorded."""


@pytest.fixture
def kubectl(cluster: Cluster) -> Kubectl:
    return Kubectl(cluster.kubeconfig)


@pytest.fixture
def core(cluster: Cluster) -> Any:
    return client.CoreV1Api(cluster.admin())


def with_account(core: Any, namespace: str, mounts_token: bool) -> None:
    account = {"metadata": {"name": RUNNER}, "automountServiceAccountToken": mounts_token}
    core.create_namespaced_service_account(namespace, account)


def test_pods_of_kfp_ask_for_no_token_so_that_their_account_must(kubectl: Kubectl, core: Any, namespace: str) -> None:
    with_account(core, namespace, mounts_token=False)
    [driver, importer, launcher] = recorded_pods(namespace)

    bare = [without_token(admitted(kubectl, pod)) for pod in (driver, importer, launcher)]
    core.patch_namespaced_service_account(RUNNER, namespace, {"automountServiceAccountToken": True})

    assert bare == [["init", "wait", "main"], ["init", "wait", "main"], ["init", "kfp-launcher", "wait", "main"]]
    until(lambda: not any(without_token(admitted(kubectl, pod)) for pod in (driver, importer, launcher)))


def test_a_pod_over_quota_is_refused_in_words_that_follow_passes_on(
    kubectl: Kubectl, core: Any, namespace: str
) -> None:
    with_account(core, namespace, mounts_token=True)
    quota = {"metadata": {"name": "all"}, "spec": {"hard": {"requests.memory": "4Gi"}}}
    core.create_namespaced_resource_quota(namespace, quota)
    defaults = {"type": "Container", "defaultRequest": {"memory": "256Mi"}, "default": {"memory": "4Gi"}}
    core.create_namespaced_limit_range(namespace, {"metadata": {"name": "all"}, "spec": {"limits": [defaults]}})
    until(lambda: core.read_namespaced_resource_quota("all", namespace).status.used)
    pod = recorded_pods(namespace)[LAUNCHER]

    until(lambda: "exceeded quota" in kubectl.try_to_create(pod))
    refusal = kubectl.server.create(pod, dryRun="All").body["message"]
    name = pod["metadata"]["annotations"]["workflows.argoproj.io/node-name"]
    node = {"type": "Pod", "name": name, "displayName": "executor(0)", "phase": "Pending", "message": refusal}

    assert snapshot_of({"status": {"nodes": {"x": node}}}).problems == (NodeProblem("generate", "PENDING", refusal),)
    assert "exceeded quota: all, requested: requests.memory=8448Mi" in refusal


def test_secrets_that_a_steps_pod_refers_to_are_those_that_preflight_looks_for() -> None:
    graph = read_graph(COMPILED / "rewriter.laptop.yaml")
    needs = read_requirements(graph, {"questions": "s3://d/q", "knowledge_base": "s3://d/k"}, RUNNER)
    pod = recorded_pods("team")[LAUNCHER]

    volumes = {volume["secret"]["secretName"] for volume in pod["spec"]["volumes"] if "secret" in volume}
    keys = {
        (reference["name"], reference["key"])
        for container in containers(pod)
        for variable in container.get("env", ())
        if (reference := variable.get("valueFrom", {}).get("secretKeyRef"))
    }

    secrets = {manifest.name for manifest in needs.objects if manifest.kind == "Secret"}
    assert volumes - secrets == {"mlpipeline-minio-artifact"}, "Argo's own, for logs"
    assert {name for name, _ in keys} == {manifest.secret for manifest in needs.inputs}
    assert {key for _, key in keys} >= {*INPUT_KEYS, FETCH_ENDPOINT}
