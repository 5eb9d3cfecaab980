"""The cluster of the tests: its nodes, and the cluster that the environment names in its place."""

from pathlib import Path
from typing import Any

import pytest
from kubernetes import client
from kubernetes.client import ApiException

from qinglan.errors import ConfigError, OutageError
from tests.cluster.plane.certs import make
from tests.cluster.plane.cluster import Cluster, chosen, fresh_namespace, session_namespaces
from tests.cluster.plane.ports import free_port
from tests.cluster.waiting import until


def test_four_nodes_of_eight_a100s_are_ready(simulated: Cluster) -> None:
    nodes = client.CoreV1Api(simulated.admin()).list_node().items

    ready = {
        node.metadata.name: (
            node.status.allocatable["nvidia.com/gpu"],
            node.metadata.labels["nvidia.com/gpu.product"],
            next(it.status for it in node.status.conditions if it.type == "Ready"),
        )
        for node in nodes
    }
    assert ready == {f"gpu-{number}": ("8", "NVIDIA-A100-SXM4-80GB", "True") for number in range(4)}


def test_training_operators_webhook_refuses_a_job_without_a_container_of_its_name(
    cluster: Cluster, namespace: str
) -> None:
    template = {"spec": {"containers": [{"name": "other", "image": "registry.test/any:1"}]}}
    wrong = {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {"name": "train"},
        "spec": {"pytorchReplicaSpecs": {"Master": {"replicas": 1, "template": template}}},
    }

    api: Any = client.CustomObjectsApi(cluster.admin())
    with pytest.raises(ApiException, match=r"validator\.pytorchjob\.training-operator"):
        api.create_namespaced_custom_object("kubeflow.org", "v1", namespace, "pytorchjobs", wrong)


def test_a_token_of_another_authority_is_refused(cluster: Cluster, namespace: str) -> None:
    api = cluster.account(namespace, "default")
    head, body, _ = api.configuration.api_key["authorization"].split(".")
    api.configuration.api_key["authorization"] = f"{head}.{body}.{'A' * 342}"

    with pytest.raises(ApiException, match="401"):
        client.CoreV1Api(api).list_namespaced_pod(namespace)


def test_the_cluster_that_the_environment_names_is_used(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("QINGLAN_TEST_CLUSTER", str(cluster.kubeconfig))
    monkeypatch.setattr("tests.cluster.plane.cluster.SESSION", "another-session")  # whose namespaces are waited for

    with chosen(tmp_path) as result, fresh_namespace(result) as name:
        assert (result.folder, result.simulated) == (None, cluster.simulated)
        assert name in session_namespaces(cluster)
        assert list(tmp_path.iterdir()) == []
        with pytest.raises(ConfigError):
            result.restart("kube-apiserver")

    assert name not in session_namespaces(cluster)


def test_a_named_cluster_that_cannot_be_used_is_an_error_and_none_is_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(tmp_path / "pki", f"https://127.0.0.1:{free_port()}")
    for kubeconfig, kind in (("nowhere", ConfigError), ("pki/admin.kubeconfig", OutageError)):
        monkeypatch.setenv("QINGLAN_TEST_CLUSTER", str(tmp_path / kubeconfig))

        with pytest.raises(kind), chosen(tmp_path):
            raise AssertionError("a cluster was found")

    assert [it.name for it in tmp_path.iterdir()] == ["pki"]


def test_a_namespace_of_a_test_goes_with_all_that_is_in_it(cluster: Cluster) -> None:
    core = client.CoreV1Api(cluster.admin())
    container = {"name": "main", "image": "registry.test/any:1"}
    with fresh_namespace(cluster) as name:
        spec = {"containers": [container], "terminationGracePeriodSeconds": 1}
        core.create_namespaced_pod(name, {"metadata": {"name": "left"}, "spec": spec})

    until(lambda: name not in session_namespaces(cluster), "the namespace is gone")

    assert core.list_namespaced_pod(name).items == []
