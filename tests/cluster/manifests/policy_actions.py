"""Parts of the rows of test_policy_table.py: subject, action, and the API server's answer.

Nothing is made (dry run).
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from tests.cluster.kubectl import Kubectl
from tests.cluster.manifests.controller_rights import ARGO
from tests.cluster.manifests.test_manifests_gateway import owned, template, workload
from tests.cluster.manifests.test_manifests_policies import DIGEST, HARDENED, NS, pod
from tests.manifests.manifest_objects import Object

ADMIN, PIPELINE = "", f"{NS}/pipeline-runner"
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
OWNER, EDITOR = f"{NS}/owner", f"{NS}/editor"
"""With Kubernetes' own ClusterRoles `admin` and `edit` in the namespace."""

ADMITTED = ""
PART = "what belongs to a part of Qinglan is for that part alone"
ACCOUNT = "a training job runs as the account `default`"
PLATFORM = "is for who may change the cluster's admission policies"
CONTROLLERS = "is made by KServe's and Knative's controllers"
MARKS = "what qinglan.dev or Pod Security say of a namespace"
NAMESPACE = "is guarded by qinglan.dev/guarded"
OWNERS = "may change the owners of rewriter"
NO_OWNER = "a rollout has no owner"
UPGRADE = "Upgrade request required"
"""The policies admitted it, and only then the API server missed the header of a stream."""

GATEWAY, RAG, ROLLOUT = ("app.kubernetes.io/name=qinglan-" + name for name in ("gateway", "rag", "rollout"))
PREDICTOR = "serving.kserve.io/inferenceservice=rewriter"
STORE = [{"name": "A", "valueFrom": {"secretKeyRef": {"name": "qinglan-store", "key": "AWS_ACCESS_KEY_ID"}}}]
EVIL = {"app.kubernetes.io/name": "evil"}

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


def namespace(labels: Object) -> Object:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "other", "labels": labels}}


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


def job(pods: Object, replica: str = "Master") -> Object:
    manifest = workload("PyTorchJob", "training", pods)
    replicas = manifest["spec"]["pytorchReplicaSpecs"]
    replicas[replica] = replicas.pop("Master")
    if replica != "Master":
        replicas["Master"] = workload("PyTorchJob", "training", template())["spec"]["pytorchReplicaSpecs"]["Master"]
    return manifest


def old_account(name: str) -> Object:
    """By the deprecated name of the field, which an API server fills in from for its own kinds only."""
    result = template()
    del result["spec"]["serviceAccountName"]
    result["spec"]["serviceAccount"] = name
    return result


def of(manifest: Object, kind: str, name: str, api: str = "apps/v1") -> Object:
    result = owned(manifest, kind, name)
    result["metadata"]["ownerReferences"][0]["apiVersion"] = api
    return result


def step(labels: Object | None = None, account: str = "pipeline-runner", **changes: Any) -> Object:
    """A pod as Argo makes it of a run's Workflow."""
    manifest = pod("run-1-impl", account=account, **changes)
    manifest["metadata"]["labels"] = {"workflows.argoproj.io/workflow": "run-1", **(labels or {})}
    return of(manifest, "Workflow", "run-1", "argoproj.io/v1alpha1")


def trained(labels: Object | None = None, **changes: Any) -> Object:
    """A pod as training-operator makes it of a PyTorchJob."""
    manifest = pod("training-master-0", **changes)
    manifest["metadata"]["labels"] = {"training.kubeflow.org/job-name": "training", **(labels or {})}
    return of(manifest, "PyTorchJob", "training", "kubeflow.org/v1")


def janitor(name: str, maker: str) -> Object:
    manifest = pod(name, account="qinglan-janitor", restartPolicy="Never")
    manifest["metadata"]["labels"] = {"app.kubernetes.io/name": "qinglan-janitor"}
    return of(manifest, "Job", maker, "batch/v1")


MODEL = {"serving.kserve.io/inferenceservice": "rewriter", "app": "isvc.rewriter-predictor"}


def model(maker: str, name: str) -> Object:
    manifest = workload("Deployment", "other-predictor", template(MODEL, account="qinglan-serving"))
    return of(manifest, maker, name, "serving.kserve.io/v1beta1")


def thing(kind: str, name: str, api: str = "v1", labels: Object | None = None, **fields: Any) -> Object:
    meta = {"name": name, "namespace": NS, **({"labels": labels} if labels else {})}
    return {"apiVersion": api, "kind": kind, "metadata": meta, **fields}


def claim(name: str, **spec: Any) -> Object:
    resources = {"requests": {"storage": "1Gi"}}
    return thing(
        "PersistentVolumeClaim", name, spec={"accessModes": ["ReadWriteOnce"], "resources": resources, **spec}
    )


def token_secret(account: str) -> Object:
    manifest = thing("Secret", "mine", type="kubernetes.io/service-account-token")
    manifest["metadata"]["annotations"] = {"kubernetes.io/service-account.name": account}
    return manifest


JOURNAL = {"kind": "PersistentVolumeClaim", "name": "qinglan-journal"}
SERVICE: Object = {"ports": [{"port": 80}], "selector": EVIL}
TOKEN: Object = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 600}}
BINDING: Object = {"apiVersion": "v1", "kind": "Binding", "target": {"kind": "Node", "name": "none"}}
EXTRA: Object = {"spec": {"ephemeralContainers": [
    {"name": "thief", "image": DIGEST, "securityContext": HARDENED, "env": STORE}]}}  # fmt: skip
PLAIN: Object = {
    "spec": {"ephemeralContainers": [{"name": "debugger", "image": DIGEST, "securityContext": HARDENED}]}
}
COMMAND: Object = {"spec": {"template": {"spec": {"containers": [{"name": "rag", "command": ["env"]}]}}}}
ROLLOUT_COMMAND: Object = {"spec": {"template": {"spec": {"containers": [{"name": "rollout", "command": ["env"]}]}}}}

GONE: Object = {
    "apiVersion": "v1",
    "kind": "ConfigMap",
    "name": "gone",
    "uid": "00000000-0000-0000-0000-000000000000",
}
DONE: Object = {"status": {"phase": "Done"}}
STEP = "qinglan-rewriter-1-impl-1"
"""Name of a pod as KFP calls those of a run of ours."""
ORPHAN: Object = {"metadata": {"ownerReferences": [GONE]}}
"""An owner that does not exist: the garbage collector deletes what has no other."""


def orphan(kind: str, name: str, owners: list[Object] | None = None) -> Action:
    return merge(kind, name, ORPHAN if owners is None else {"metadata": {"ownerReferences": owners}})


def with_owner(manifest: Object) -> Object:
    return {**manifest, "metadata": {**manifest["metadata"], **ORPHAN["metadata"]}}


def autoscaler(name: str, target: str) -> Object:
    reference = {"apiVersion": "apps/v1", "kind": "Deployment", "name": target}
    return thing(
        "HorizontalPodAutoscaler", name, "autoscaling/v2", spec={"scaleTargetRef": reference, "maxReplicas": 5}
    )


def ingress(service: str) -> Object:
    backend = {"service": {"name": service, "port": {"number": 80}}}
    path = {"path": "/", "pathType": "Prefix", "backend": backend}
    rule = {"host": "rewriter.example.com", "http": {"paths": [path]}}
    return thing("Ingress", "mine", "networking.k8s.io/v1", spec={"rules": [rule]})


LEASE = thing("Lease", "qinglan-rollout", "coordination.k8s.io/v1", spec={"holderIdentity": "one"})
POD_DEFAULT = thing("PodDefault", "mine", "kubeflow.org/v1alpha1", spec={"selector": {"matchLabels": {"a": "b"}}})
EXTERNAL: Object = {"type": "ExternalName", "externalName": "evil.example"}


def crd(api: str, kind: str) -> Object:
    """A kind that the tests' cluster lacks, with any fields."""
    group, version = api.split("/")
    plural = f"{kind.lower()}s"
    approval = {"api-approved.kubernetes.io": "unapproved, a test"}
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}", "annotations": approval},
        "spec": {
            "group": group, "scope": "Namespaced",
            "names": {"kind": kind, "plural": plural, "singular": kind.lower()},
            "versions": [{"name": version, "served": True, "storage": True, "schema": schema}],
        },
    }  # fmt: skip


def people() -> list[Object]:
    """OWNER and EDITOR, with the rights that Kubernetes gives to such people."""
    result = []
    for account, role in ((OWNER, "admin"), (EDITOR, "edit")):
        name = account.split("/")[1]
        reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role}
        result += [
            thing("ServiceAccount", name),
            thing("RoleBinding", name, "rbac.authorization.k8s.io/v1", roleRef=reference,
                  subjects=[{"kind": "ServiceAccount", "name": name, "namespace": NS}]),
        ]  # fmt: skip
    return result
