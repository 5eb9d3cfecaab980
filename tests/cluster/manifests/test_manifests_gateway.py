"""Every way to what belongs to one part of Qinglan, by each kind of object that makes pods.

Tried on the real API server, by somebody with every right in the namespace. test_policy_table.py tries who else may.
"""

import copy
from typing import Any

import pytest

from tests.cluster.kubectl import Kubectl
from tests.cluster.manifests.test_manifests_policies import DIGEST, HARDENED, NS, STRANGER, house, pod
from tests.cluster.waiting import until
from tests.manifests.manifest_objects import Object

__all__ = ["house"]
REFUSED = "what belongs to a part of Qinglan is for that part alone"
GATEWAY = "app.kubernetes.io/name=qinglan-gateway"
LABELS = {"app.kubernetes.io/name": "qinglan-gateway"}
KEY: Object = {"name": "one", "image": DIGEST, "securityContext": HARDENED,
               "envFrom": [{"secretRef": {"name": "qinglan-paid-api"}}]}  # fmt: skip
CLAIM = {"name": "journal", "persistentVolumeClaim": {"claimName": "qinglan-journal"}}


def template(labels: Object | None = None, account: str = "default", **changes: Any) -> Object:
    """The template of a pod that is admitted but for what it is given here."""
    return {"metadata": {"labels": labels or {"a": "b"}}, "spec": pod("one", account=account, **changes)["spec"]}


def secret_volume(name: str) -> list[Object]:
    return [{"name": "stolen", "secret": {"secretName": name}}]


def container(**changes: Any) -> list[Object]:
    return [{"name": "one", "image": DIGEST, "securityContext": HARDENED, **changes}]


THIEF: dict[str, Object] = {
    "all of it": {"metadata": {"labels": LABELS}, "spec": {
        "serviceAccountName": "qinglan-gateway", "containers": [KEY], "volumes": [CLAIM]}},
    "the label": {"metadata": {"labels": LABELS}, "spec": pod("one")["spec"]},
    "the account": {"metadata": {"labels": {"a": "b"}}, "spec": pod("one", account="qinglan-gateway")["spec"]},
    "the key": {"metadata": {"labels": {"a": "b"}}, "spec": pod("one", containers=[KEY])["spec"]},
    "the journal": {"metadata": {"labels": {"a": "b"}}, "spec": pod("one", volumes=[CLAIM])["spec"]},
    "the rollout's account": template(account="qinglan-rollout"),
    "the rollout's label": template({"app.kubernetes.io/name": "qinglan-rollout"}),
    "the rollout's key": template(volumes=secret_volume("qinglan-rollout-key")),
    "the RAG service's label": template({"app.kubernetes.io/name": "qinglan-rag"}),
    "the models' account": template(account="qinglan-serving"),
    "the steps' account": template(account="pipeline-runner"),
    "the steps' label": template({"workflows.argoproj.io/workflow": "a"}),
    "the release key": template(volumes=secret_volume("qinglan-release-keys")),
    "the builder's key": template(volumes=[
        {"name": "a", "projected": {"sources": [{"secret": {"name": "qinglan-builder-key"}}]}}]),
    "what users asked": template(initContainers=container(
        name="first", envFrom=[{"secretRef": {"name": "qinglan-payloads"}}])),
    "a Secret that nobody has listed": template(volumes=secret_volume("qinglan-new")),
    "a key by a volume's driver": template(volumes=[{"name": "a", "csi": {
        "driver": "one", "nodePublishSecretRef": {"name": "qinglan-release-keys"}}}]),
    "a copy of the journal": template(volumes=[{"name": "a", "ephemeral": {"volumeClaimTemplate": {"spec": {
        "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}},
        "dataSource": {"kind": "PersistentVolumeClaim", "name": "qinglan-journal"}}}}}]),
}  # fmt: skip


def workload(kind: str, name: str, template: Object) -> Object:
    """An object of this kind that makes such pods."""
    copied = copy.deepcopy(template)
    spec: Object = {"selector": {"matchLabels": copied["metadata"]["labels"]}, "template": copied}
    if kind in ("Job", "CronJob", "PyTorchJob"):
        copied["spec"]["restartPolicy"] = "Never"
        spec = {"template": copied}
    if kind == "CronJob":
        spec = {"schedule": "0 0 * * *", "jobTemplate": {"spec": spec}}
    if kind == "PyTorchJob":
        copied["spec"]["containers"][0]["name"] = "pytorch"
        spec = {"pytorchReplicaSpecs": {"Master": {"replicas": 1, "template": copied}}}
    if kind == "ReplicationController":
        spec["selector"] = copied["metadata"]["labels"]
    if kind == "StatefulSet":
        spec["serviceName"] = "one"
    return {"apiVersion": API[kind], "kind": kind, "metadata": {"name": name, "namespace": NS}, "spec": spec}


API = {
    "Deployment": "apps/v1", "ReplicaSet": "apps/v1", "StatefulSet": "apps/v1", "DaemonSet": "apps/v1",
    "Job": "batch/v1", "CronJob": "batch/v1", "ReplicationController": "v1", "PyTorchJob": "kubeflow.org/v1",
}  # fmt: skip


@pytest.mark.parametrize("kind", API)
@pytest.mark.parametrize("attempt", THIEF)
def test_nothing_that_makes_pods_makes_them_with_what_is_one_parts(house: Kubectl, kind: str, attempt: str) -> None:
    assert REFUSED in house.try_to_create(workload(kind, "thief", THIEF[attempt]), STRANGER)


@pytest.mark.parametrize("kind", API)
def test_the_same_without_it_is_admitted(house: Kubectl, kind: str) -> None:
    """So that each refusal above is for what it takes."""
    honest = {"metadata": {"labels": {"a": "b"}}, "spec": pod("one")["spec"]}

    assert house.try_to_create(workload(kind, "honest", honest), STRANGER) == ""


def test_the_gateways_name_on_a_replica_set_is_not_enough(house: Kubectl) -> None:
    assert REFUSED in house.try_to_create(
        workload("ReplicaSet", "qinglan-gateway-5d8f7", THIEF["all of it"]), STRANGER
    )


def owned(manifest: Object, kind: str, name: str) -> Object:
    owner = {"apiVersion": "apps/v1", "kind": kind, "name": name, "uid": "1", "controller": True}
    return {**manifest, "metadata": {**manifest["metadata"], "ownerReferences": [owner]}}


def test_controllers_make_it_for_the_gateways_own_deployment_alone(house: Kubectl) -> None:
    """Return the pods that another Deployment, created before the policy, would have."""
    thief = workload("ReplicaSet", "thief-5d8f7", THIEF["the key"])
    taken = pod("thief-5d8f7-1", containers=[KEY])
    deployments, replica_sets = "kube-system/deployment-controller", "kube-system/replicaset-controller"

    assert REFUSED in house.try_to_create(owned(thief, "Deployment", "thief"), deployments)
    assert house.try_to_create(owned(thief, "Deployment", "qinglan-gateway"), deployments) == ""
    assert REFUSED in house.try_to_create(owned(thief, "Deployment", "qinglan-gateway"), STRANGER)
    for maker in ("ReplicaSet/thief-5d8f7", "ReplicaSet/qinglan-gateway-x-5d8f7", "Job/qinglan-gateway-5d8f7"):
        assert REFUSED in house.try_to_create(owned(taken, *maker.split("/")), replica_sets), maker
    assert house.try_to_create(owned(taken, "ReplicaSet", "qinglan-gateway-5d8f7"), replica_sets) == ""
    assert REFUSED in house.try_to_create(owned(taken, "ReplicaSet", "qinglan-gateway-5d8f7"), STRANGER)


def patched(kubectl: Kubectl, what: str, change: Object, subresource: str = "", account: str = STRANGER) -> str:
    kind, name = what.split("/")
    return kubectl.try_to_patch(kind, name, NS, change, account, subresource, how="strategic-merge")


def slipped_in(**container: Any) -> Object:
    manifest = {"name": "thief", "image": DIGEST, "securityContext": HARDENED, **container}
    return {"spec": {"ephemeralContainers": [manifest]}}


BY_ENV = [{"name": "A", "valueFrom": {"secretKeyRef": {"name": "qinglan-paid-api", "key": "OPENAI_API_KEY"}}}]


@pytest.mark.parametrize("account", [STRANGER, ""], ids=["stranger", "administrator"])
@pytest.mark.parametrize("attempt", [{"envFrom": KEY["envFrom"]}, {"env": BY_ENV}], ids=["envFrom", "env"])
def test_no_container_with_the_key_is_slipped_into_another_pod(house: Kubectl, attempt: Object, account: str) -> None:
    plain = "pod/bystander"

    refused = patched(house, plain, slipped_in(**attempt), "ephemeralcontainers", account=account)
    assert REFUSED in refused, refused
    assert patched(house, plain, slipped_in(), "ephemeralcontainers", account=account) == ""


def test_no_container_at_all_is_slipped_into_the_gateways_pod(house: Kubectl) -> None:
    assert REFUSED in patched(house, f"pod/{house.a_pod(NS, GATEWAY)}", slipped_in(), "ephemeralcontainers")


def test_the_gateways_pod_keeps_its_image(house: Kubectl) -> None:
    change = {"spec": {"containers": [{"name": "gateway", "image": DIGEST.replace("a" * 64, "b" * 64)}]}}

    assert REFUSED in patched(house, f"pod/{house.a_pod(NS, GATEWAY)}", change)
    assert patched(house, f"pod/{house.a_pod(NS, GATEWAY)}", {"metadata": {"labels": {"team": "search"}}}) == ""


def test_the_gateways_deployment_is_changed_by_who_may_change_the_policies(house: Kubectl) -> None:
    change = {"spec": {"template": {"spec": {"containers": [{"name": "gateway", "command": ["env"]}]}}}}

    assert REFUSED in patched(house, "deployment/qinglan-gateway", change)
    assert patched(house, "deployment/qinglan-gateway", change, account="") == ""
    assert patched(house, "deployment/qinglan-gateway", {"metadata": {"labels": {"team": "search"}}}) == ""


def test_its_replica_set_keeps_its_template(house: Kubectl) -> None:
    result = house.all("replicasets", NS, GATEWAY)[0]["metadata"]["name"]
    change = {"spec": {"template": {"spec": {"containers": [{"name": "gateway", "command": ["env"]}]}}}}

    assert REFUSED in patched(house, f"replicaset/{result}", change)


def test_the_gateway_itself_is_rolled_out_anew(house: Kubectl) -> None:
    """The controllers find every link of its own chain open."""
    before = house.a_pod(NS, GATEWAY)
    house.must("rollout", "restart", "deployment/qinglan-gateway", "-n", NS)

    until(lambda: house.a_pod(NS, GATEWAY) != before, "another pod")
    until(
        lambda: house.get("deployment", "qinglan-gateway", NS)["status"].get("availableReplicas") == 1,
        "the gateway is available",
    )
