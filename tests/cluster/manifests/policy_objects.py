"""Objects that the rows of the policy table try to create, and the accounts that try it."""

import copy
from typing import Any

import yaml

from tests.manifests.manifest_objects import MANIFESTS, Object

NS = "qinglan"
ROLLOUT_ACCOUNT, PIPELINE, SERVING = f"{NS}/qinglan-rollout", f"{NS}/pipeline-runner", f"{NS}/qinglan-serving"
STRANGER = f"{NS}/stranger"
OWNER, EDITOR = f"{NS}/owner", f"{NS}/editor"
"""With Kubernetes' own ClusterRoles `admin` and `edit` in the namespace."""

DIGEST = f"qinglan/cpu@sha256:{'a' * 64}"
HARDENED: Object = {
    "allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}, "runAsNonRoot": True, "runAsUser": 65532,
    "seccompProfile": {"type": "RuntimeDefault"},
}  # fmt: skip
CLAIM = {"name": "journal", "persistentVolumeClaim": {"claimName": "qinglan-journal"}}
PAID = [{"secretRef": {"name": "qinglan-paid-api"}}]
STORE = [{"name": "A", "valueFrom": {"secretKeyRef": {"name": "qinglan-store", "key": "AWS_ACCESS_KEY_ID"}}}]
EVIL = {"app.kubernetes.io/name": "evil"}
MODEL = {"serving.kserve.io/inferenceservice": "rewriter", "app": "isvc.rewriter-predictor"}
API = {
    "Pod": "v1", "Deployment": "apps/v1", "ReplicaSet": "apps/v1", "StatefulSet": "apps/v1", "DaemonSet": "apps/v1",
    "Job": "batch/v1", "CronJob": "batch/v1", "ReplicationController": "v1", "PyTorchJob": "kubeflow.org/v1",
}  # fmt: skip
"""Kinds that make pods, or are one."""


def stranger() -> list[Object]:
    """Somebody with every right in the namespace that a rollout would need, and more."""
    meta = {"name": "stranger", "namespace": NS}
    groups = [
        "", "apps", "batch", "serving.kserve.io", "kubeflow.org", "networking.k8s.io", "monitoring.coreos.com",
        "serving.knative.dev", "gateway.networking.k8s.io", "discovery.k8s.io", "qinglan.dev", "coordination.k8s.io",
        "networking.internal.knative.dev", "snapshot.storage.k8s.io",
    ]  # fmt: skip
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "stranger"}
    return [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": meta},
        {
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": meta,
            "rules": [{"apiGroups": groups, "resources": ["*"], "verbs": ["*"]}],
        },
        {
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": meta, "roleRef": role,
            "subjects": [{"kind": "ServiceAccount", "name": "stranger", "namespace": NS}],
        },
    ]  # fmt: skip


def isvc(name: str) -> Object:
    (manifest,) = list(yaml.safe_load_all((MANIFESTS / "rollout/standard/stable.yaml").read_text()))
    manifest["metadata"] |= {"name": name, "namespace": NS}
    return dict(manifest)


def pod(
    name: str, image: str = DIGEST, account: str = "default", security: Object | None = None, **changes: Any
) -> Object:
    """Build a pod that is admitted but for what it is given here."""
    containers = container(image=image, securityContext={**HARDENED, **(security or {})})
    spec = {"serviceAccountName": account, "containers": containers, **changes}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": NS}, "spec": spec}


def template(labels: Object | None = None, account: str = "default", **changes: Any) -> Object:
    """The template of a pod that is admitted but for what it is given here."""
    return {"metadata": {"labels": labels or {"a": "b"}}, "spec": pod("one", account=account, **changes)["spec"]}


def secret_volume(name: str) -> list[Object]:
    return [{"name": "stolen", "secret": {"secretName": name}}]


def container(**changes: Any) -> list[Object]:
    return [{"name": "one", "image": DIGEST, "securityContext": HARDENED, **changes}]


def workload(kind: str, name: str, template: Object) -> Object:
    """Build an object of this kind that makes such pods, or such a pod."""
    copied = copy.deepcopy(template)
    metadata: Object = {"name": name, "namespace": NS}
    spec: Object = {"selector": {"matchLabels": copied["metadata"]["labels"]}, "template": copied}
    if kind == "Pod":
        metadata, spec = {**copied["metadata"], **metadata}, copied["spec"]
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
    return {"apiVersion": API[kind], "kind": kind, "metadata": metadata, "spec": spec}


def runtime(image: str) -> Object:
    spec = {"containers": [{"name": "kserve-container", "image": image}]}
    return thing("ServingRuntime", "one", "serving.kserve.io/v1alpha1", spec=spec)


def namespace(labels: Object) -> Object:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "other", "labels": labels}}


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
    """Copy an object with this controller as its owner."""
    owner = {"apiVersion": api, "kind": kind, "name": name, "uid": "1", "controller": True}
    return {**manifest, "metadata": {**manifest["metadata"], "ownerReferences": [owner]}}


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
