"""Tests of the cluster's promises: real admission, real controllers, simulated nodes."""

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from kubernetes import client
from kubernetes.client import ApiException

from qinglan.errors import ConfigError, OutageError
from tests.cluster.plane.certs import make
from tests.cluster.plane.cluster import Cluster, chosen, fresh_namespace, session_namespaces, until_gone
from tests.cluster.plane.ports import free_port

SECONDS = 240.0
SERVING = ("serving.kserve.io", "v1beta1")
JOBS = ("kubeflow.org", "v1")


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


def test_kserve_refuses_a_wrong_service_in_its_own_words(cluster: Cluster, namespace: str) -> None:
    wrong = service("wrong", minReplicas=9, maxReplicas=3)

    with pytest.raises(ApiException) as refused:
        objects(cluster).create_namespaced_custom_object(*SERVING, namespace, "inferenceservices", wrong)

    assert message(refused.value) == (
        'admission webhook "inferenceservice.kserve-webhook-server.validator" denied the request: '
        "'MinReplicas' cannot be greater than MaxReplicas"
    )


@pytest.mark.parametrize("mode", ["Standard", "Knative"])
def test_a_service_becomes_ready(simulated: Cluster, namespace: str, mode: str) -> None:
    api, manifest = objects(simulated), service("rewriter", minReplicas=1, maxReplicas=2)
    manifest["metadata"]["annotations"] = {"serving.kserve.io/deploymentMode": mode}

    api.create_namespaced_custom_object(*SERVING, namespace, "inferenceservices", manifest)

    deployment = until(
        lambda: api.get_namespaced_custom_object(*SERVING, namespace, "inferenceservices", "rewriter"),
        lambda it: condition(it, "Ready") == "True",
    )
    assert deployment["status"]["url"].startswith("http://rewriter")
    pod = pods(simulated, namespace)[0]
    assert pod.spec.init_containers[0].name == "storage-initializer"
    assert pod.spec.init_containers[0].args[0] == "s3://models/m/1"


def test_a_job_on_two_nodes_succeeds(simulated: Cluster, namespace: str) -> None:
    api = objects(simulated)

    api.create_namespaced_custom_object(*JOBS, namespace, "pytorchjobs", job({"sim/exit-code": "0"}))

    done = until(
        lambda: api.get_namespaced_custom_object(*JOBS, namespace, "pytorchjobs", "train"),
        lambda it: condition(it, "Succeeded") == "True",
    )
    assert done["status"]["replicaStatuses"]["Master"]["succeeded"] == 1
    assert {pod.spec.node_name for pod in pods(simulated, namespace)} <= {f"gpu-{number}" for number in range(4)}


def test_a_job_that_fails_says_so(simulated: Cluster, namespace: str) -> None:
    api = objects(simulated)

    api.create_namespaced_custom_object(*JOBS, namespace, "pytorchjobs", job({"sim/exit-code": "3"}))

    until(
        lambda: api.get_namespaced_custom_object(*JOBS, namespace, "pytorchjobs", "train"),
        lambda it: condition(it, "Failed") == "True",
    )


def test_training_operators_webhook_refuses_a_job_without_a_container_of_its_name(
    cluster: Cluster, namespace: str
) -> None:
    wrong = job({})
    wrong["spec"]["pytorchReplicaSpecs"]["Master"]["template"]["spec"]["containers"][0]["name"] = "other"

    with pytest.raises(ApiException, match=r"validator\.pytorchjob\.training-operator"):
        objects(cluster).create_namespaced_custom_object(*JOBS, namespace, "pytorchjobs", wrong)


def test_a_ninth_gpu_of_a_node_is_not_scheduled_and_the_reason_is_named(cluster: Cluster, namespace: str) -> None:
    core = client.CoreV1Api(cluster.admin())

    core.create_namespaced_pod(namespace, pod("greedy", limits={"nvidia.com/gpu": "9"}))

    answer = until(
        lambda: core.read_namespaced_pod("greedy", namespace).status.conditions or [],
        lambda each: any(it.type == "PodScheduled" for it in each),
    )
    assert (answer[0].reason, "Insufficient nvidia.com/gpu" in answer[0].message) == ("Unschedulable", True)


def test_a_claim_that_many_may_write_gets_a_volume(simulated: Cluster, namespace: str) -> None:
    core = client.CoreV1Api(simulated.admin())
    spec = {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1Ti"}}}
    core.create_namespaced_persistent_volume_claim(namespace, {"metadata": {"name": "scratch"}, "spec": spec})
    volume = {"name": "scratch", "persistentVolumeClaim": {"claimName": "scratch"}}

    core.create_namespaced_pod(namespace, pod("writer", volumes=[volume]))

    until(lambda: core.read_namespaced_pod("writer", namespace).status.phase, lambda phase: phase == "Running")


def test_a_bare_service_account_may_do_nothing_until_it_is_given_a_role(cluster: Cluster, namespace: str) -> None:
    account_api = client.CoreV1Api(cluster.account(namespace, "default"))

    with pytest.raises(ApiException) as refused:
        account_api.list_namespaced_pod(namespace)
    grant(cluster, namespace)

    assert refused.value.status == 403
    assert f'User "system:serviceaccount:{namespace}:default" cannot list resource "pods"' in message(refused.value)
    assert account_api.list_namespaced_pod(namespace).items == []
    with pytest.raises(ApiException, match="403"):
        account_api.list_namespaced_secret(namespace)


def test_a_token_of_another_authority_is_nobodys(cluster: Cluster, namespace: str) -> None:
    api = cluster.account(namespace, "default")
    head, body, _ = api.configuration.api_key["authorization"].split(".")
    api.configuration.api_key["authorization"] = f"{head}.{body}.{'A' * 342}"

    with pytest.raises(ApiException, match="401"):
        client.CoreV1Api(api).list_namespaced_pod(namespace)


def test_a_restricted_namespace_refuses_a_privileged_pod(cluster: Cluster, namespace: str) -> None:
    core = client.CoreV1Api(cluster.admin())
    core.patch_namespace(namespace, {"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "restricted"}}})
    wrong = pod("privileged")
    wrong["spec"]["containers"][0]["securityContext"] = {"privileged": True}

    with pytest.raises(ApiException, match="violates PodSecurity"):
        core.create_namespaced_pod(namespace, wrong)


def test_the_cluster_that_the_environment_names_is_used(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("QINGLAN_TEST_CLUSTER", str(cluster.kubeconfig))
    monkeypatch.setattr("tests.cluster.plane.cluster.SESSION", "another-session")  # whose namespaces are waited for

    with chosen(tmp_path) as result, fresh_namespace(result) as name:
        assert (result.folder, result.simulated) == (None, cluster.simulated)
        assert name in session_namespaces(cluster)
        assert list(tmp_path.iterdir()) == []

    assert name not in session_namespaces(cluster)


def test_a_kubeconfig_that_is_none_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QINGLAN_TEST_CLUSTER", str(tmp_path / "nowhere"))

    with pytest.raises(ConfigError, match="nowhere: this is no kubeconfig that can be used"), chosen(tmp_path):
        raise AssertionError("a cluster was found")


def test_a_cluster_that_does_not_answer_is_an_outage_and_none_of_ours_takes_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(tmp_path / "pki", f"https://127.0.0.1:{free_port()}")
    monkeypatch.setenv("QINGLAN_TEST_CLUSTER", str(tmp_path / "pki" / "admin.kubeconfig"))

    with pytest.raises(OutageError, match="does not answer as it should"), chosen(tmp_path):
        raise AssertionError("a cluster was found")

    assert [it.name for it in tmp_path.iterdir()] == ["pki"]


def test_a_part_of_somebodys_cluster_is_not_ours_to_end(cluster: Cluster) -> None:
    with pytest.raises(ConfigError, match="kube-apiserver is not ours to end"):
        cluster._replace(folder=None).restart("kube-apiserver")


def test_a_namespace_of_a_test_goes_with_all_that_is_in_it(cluster: Cluster) -> None:
    with fresh_namespace(cluster) as name:
        client.CoreV1Api(cluster.admin()).create_namespaced_pod(name, pod("left", terminationGracePeriodSeconds=1))

    until_gone(cluster, name)

    assert pods(cluster, name) == []


def grant(cluster: Cluster, namespace: str) -> None:
    """The account `default` of this namespace may list pods here."""
    rights = client.RbacAuthorizationV1Api(cluster.admin())
    rules = [{"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]}]
    rights.create_namespaced_role(namespace, {"metadata": {"name": "lists"}, "rules": rules})
    bound = {
        "metadata": {"name": "lists"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "lists"},
        "subjects": [{"kind": "ServiceAccount", "name": "default", "namespace": namespace}],
    }
    rights.create_namespaced_role_binding(namespace, bound)
    account_api = client.CoreV1Api(cluster.account(namespace, "default"))
    until(lambda: allowed(lambda: account_api.list_namespaced_pod(namespace)), bool)


def allowed(call: Callable[[], Any]) -> bool:
    try:
        call()
    except ApiException as error:
        assert error.status == 403
        return False
    return True


def message(error: ApiException) -> str:
    return str(json.loads(error.body)["message"])


def service(name: str, **predictor: Any) -> dict[str, Any]:
    model = {"modelFormat": {"name": "pytorch"}, "protocolVersion": "v2", "storageUri": "s3://models/m/1"}
    return {
        "apiVersion": "/".join(SERVING),
        "kind": "InferenceService",
        "metadata": {"name": name},
        "spec": {"predictor": {**predictor, "model": model}},
    }


def job(annotations: dict[str, str]) -> dict[str, Any]:
    def replica() -> dict[str, Any]:
        spec = pod("", limits={"nvidia.com/gpu": "4"})["spec"]
        spec["containers"][0]["name"] = "pytorch"
        return {
            "replicas": 1,
            "restartPolicy": "Never",
            "template": {"metadata": {"annotations": annotations}, "spec": spec},
        }

    return {
        "apiVersion": "/".join(JOBS),
        "kind": "PyTorchJob",
        "metadata": {"name": "train"},
        "spec": {"nprocPerNode": "4", "pytorchReplicaSpecs": {"Master": replica(), "Worker": replica()}},
    }


def pod(name: str, limits: dict[str, str] | None = None, **spec: Any) -> dict[str, Any]:
    container = {"name": "main", "image": "registry.test/any:1", "resources": {"limits": limits or {}}}
    return {"metadata": {"name": name}, "spec": {"containers": [container], **spec}}


def objects(cluster: Cluster) -> Any:
    return client.CustomObjectsApi(cluster.admin())


def pods(cluster: Cluster, namespace: str) -> list[Any]:
    result: list[Any] = client.CoreV1Api(cluster.admin()).list_namespaced_pod(namespace).items
    return result


def condition(it: dict[str, Any], name: str) -> str:
    each = it.get("status", {}).get("conditions") or []
    return next(
        (str(status_condition["status"]) for status_condition in each if status_condition["type"] == name), ""
    )


def until(read_state: Callable[[], Any], is_expected: Callable[[Any], bool]) -> Any:
    """Return the state when it is as expected; if that never happens, raise the last state as an error."""
    end = time.monotonic() + SECONDS
    while not is_expected(observed := read_state()):
        assert time.monotonic() < end, observed
        time.sleep(0.1)
    return observed
