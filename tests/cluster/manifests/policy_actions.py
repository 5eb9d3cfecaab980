"""Actions that the rows of the policy table try on the API server, without making anything (dry run)."""

from collections.abc import Callable
from typing import NamedTuple

from tests.cluster.kubectl import Kubectl
from tests.cluster.manifests.controller_rights import ARGO
from tests.cluster.manifests.policy_objects import NS, ORPHAN
from tests.manifests.manifest_objects import Object

ADMIN = ""
TRAINING = "kubeflow/training-operator"
KSERVE, KSERVE_IN_KUBEFLOW = "kserve/kserve-controller-manager", "kubeflow/kserve-controller-manager"
NOTEBOOKS = "kubeflow/notebook-controller"
REPLICA_SETS, JOBS, CRON_JOBS = (f"kube-system/{name}-controller" for name in ("replicaset", "job", "cronjob"))
STATEFUL_SETS, CLAIMS = "kube-system/statefulset-controller", "kube-system/ephemeral-volume-controller"
DEPLOYMENTS, AUTOSCALER = "kube-system/deployment-controller", "kube-system/horizontal-pod-autoscaler"
NAMESPACES, GARBAGE = "kube-system/namespace-controller", "kube-system/generic-garbage-collector"
PROFILES = "kubeflow/metacontroller"
CLUSTER_WIDE = (ARGO, KSERVE_IN_KUBEFLOW, NOTEBOOKS, PROFILES)
"""Controllers that are not installed in the tests' cluster: they get the right that theirs have."""
NODE, DRAINER = "system:node:one", "drainer"

ADMITTED = ""
PART = "what belongs to a part of Qinglan is for that part alone"
ACCOUNT = "a training job runs as the account `default`"
PLATFORM = "is for who may change the cluster's admission policies"
CONTROLLERS = "is made by KServe's and Knative's controllers"
MARKS = "what qinglan.dev or Pod Security say of a namespace"
NAMESPACE = "is guarded by qinglan.dev/guarded"
OWNERS = "may change the owners of rewriter"
NO_OWNER = "a rollout has no owner"
BY_DIGEST = "'qinglan-models-by-digest' with binding 'qinglan-models-by-digest' denied request"
IMAGES = "in a namespace of a release an image is named by digest"
ONLY_THE_ROLLOUT = "only qinglan/qinglan-rollout may change what"
POD_SECURITY = 'violates PodSecurity "restricted'
QUOTA = "exceeded quota"
UPGRADE = "Upgrade request required"
"""The policies admitted it, and only then the API server missed the header of a stream."""

GATEWAY, RAG, ROLLOUT = ("app.kubernetes.io/name=qinglan-" + name for name in ("gateway", "rag", "rollout"))
PREDICTOR = "serving.kserve.io/inferenceservice=rewriter"
Action = Callable[[Kubectl, str], str]


class Row(NamedTuple):
    account: str
    what: str
    action: Action
    answer: str


def create(manifest: Object) -> Action:
    return lambda kubectl, account: kubectl.try_to_create(manifest, account)


def object_name(kubectl: Kubectl, kind: str, name: str) -> str:
    """The name; one with = is a label, and names the first object that has it."""
    return name if "=" not in name else str(kubectl.all(kind, NS, name)[0]["metadata"]["name"])


def patch(kind: str, name: str, change: Object, subresource: str = "") -> Action:
    def action(kubectl: Kubectl, account: str) -> str:
        target = object_name(kubectl, kind, name)
        return kubectl.try_to_patch(kind, target, NS, change, account, subresource, how="strategic-merge")

    return action


def merge(kind: str, name: str, change: Object, subresource: str = "") -> Action:
    def action(kubectl: Kubectl, account: str) -> str:
        return kubectl.try_to_patch(kind, object_name(kubectl, kind, name), NS, change, account, subresource)

    return action


def of_namespace(change: Object, subresource: str = "", name: str = NS) -> Action:
    return lambda kubectl, account: kubectl.try_to_patch("namespace", name, "", change, account, subresource)


def put(kind: str, name: str, change: Object, subresource: str = "") -> Action:
    """Read the object, change these fields at its top, and write all of it, as controllers do."""

    def action(kubectl: Kubectl, account: str) -> str:
        path = kubectl.server.resource(kind).path(NS, name)
        manifest = kubectl.server.request("GET", f"{path}/scale" if subresource == "scale" else path).body
        written = f"{path}/{subresource}" if subresource else path
        return kubectl.server.request("PUT", written, _merged(manifest, change), account, {"dryRun": "All"}).refusal

    return action


def _merged(manifest: Object, change: Object) -> Object:
    return {**manifest, **{key: {**manifest[key], **value} for key, value in change.items()}}


def delete(kind: str, name: str = "") -> Action:
    return request("DELETE", kind, name)


def connect(kind: str, name: str, subresource: str, **query: str) -> Action:
    """As kubectl asks for a stream; without its header the API server itself refuses, after the policies."""
    return request("GET", kind, name, subresource, None, **(query or {"path": "/"}))


def scale(name: str, replicas: int = 0, kind: str = "deployment") -> Action:
    return merge(kind, name, {"spec": {"replicas": replicas}}, "scale")


def evict(label: str) -> Action:
    def action(kubectl: Kubectl, account: str) -> str:
        name = object_name(kubectl, "pod", label)
        body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name, "namespace": NS}}
        path = kubectl.server.resource("pod").path(NS, name, "eviction")
        return kubectl.server.request("POST", path, body, account, {"dryRun": "All"}).refusal

    return action


def request(
    method: str, kind: str, name: str = "", subresource: str = "", body: Object | None = None, **query: str
) -> Action:
    def action(kubectl: Kubectl, account: str) -> str:
        target = object_name(kubectl, kind, name)
        path = kubectl.server.resource(kind).path(NS, target, subresource)
        return kubectl.server.request(method, path, body, account, query or {"dryRun": "All"}).refusal

    return action


def config_map(kubectl: Kubectl) -> str:
    """Name of the gateway's ConfigMap, which ends in the digest of its content."""
    names = [str(configmap["metadata"]["name"]) for configmap in kubectl.all("configmaps", NS)]
    return next(name for name in names if name.startswith("qinglan-gateway-"))


def settings(change: Object) -> Action:
    return lambda kubectl, account: kubectl.try_to_patch("configmap", config_map(kubectl), NS, change, account)


def orphan(kind: str, name: str, owners: list[Object] | None = None) -> Action:
    return merge(kind, name, ORPHAN if owners is None else {"metadata": {"ownerReferences": owners}})
