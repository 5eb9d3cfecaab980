"""The Kubernetes objects of a KFP for many users: upstream's own where it has them, and a tenant's profile.

The profile is what Kubeflow's profile controller and KFP's pipelines-profile-controller make in a user's namespace.
"""

import base64
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from tests.cluster.plane.objects import in_namespace, load
from tests.kfp.backend.build import Dist

Object = dict[str, Any]

NAMESPACE = "kubeflow"
BUCKET = "mlpipeline"
MEMBER = "default-editor"
"""The account of a profile that its owner's programs use."""

PERSON = "user@example.com"
"""A person of the profile, by the header that a login in front of KFP sets."""

KINDS = frozenset({
    "ClusterRole", "ClusterRoleBinding", "ConfigMap", "CustomResourceDefinition", "Role", "RoleBinding", "Service",
    "ServiceAccount",
})  # fmt: skip
"""The kinds that are applied: programs are started here as processes, and there is no Istio and no metacontroller."""


class Store(NamedTuple):
    """The S3 store of KFP."""

    endpoint: str
    """HOST:PORT."""

    access_key: str
    secret_key: str


def upstream_objects(rendered: str) -> list[Object]:
    """The objects of KFP's rendered installation for many users that this back end needs."""
    return [it for it in yaml.safe_load_all(rendered) if it and it["kind"] in KINDS and not _is_profile_code(it)]


def _is_profile_code(it: Object) -> bool:
    return bool(
        it["kind"] == "ConfigMap" and it["metadata"]["name"].startswith("kubeflow-pipelines-profile-controller")
    )


def metadata_service(dist: Dist) -> list[Object]:
    folder = dist.source / "manifests" / "kustomize" / "base" / "metadata" / "base"
    return in_namespace(load([folder / "metadata-grpc-service.yaml"]), NAMESPACE)


def argo_objects(dist: Dist) -> list[Object]:
    """Argo's kinds, accounts and rights, the ones that KFP's installation takes."""
    base, install = dist.argo / "manifests" / "base", dist.argo / "manifests" / "cluster-install-no-crds"
    files = [
        *_manifests(base / "crds" / "minimal"), base / "workflow-controller" / "workflow-controller-sa.yaml",
        base / "workflow-controller" / "workflow-controller-priorityclass.yaml",
        *_manifests(install / "workflow-controller-rbac"),
    ]  # fmt: skip
    return in_namespace(load(files), NAMESPACE)


def _manifests(folder: Path) -> list[Path]:
    return sorted(file for file in folder.glob("*.yaml") if file.name != "kustomization.yaml")


def argo_settings(patch: Object, store: Store) -> Object:
    """KFP's own settings of Argo's controller, with this store, and without the metrics that listen everywhere."""
    data = dict(patch["data"])
    repository = yaml.safe_load(data["artifactRepository"])
    repository["s3"] |= {"endpoint": store.endpoint, "bucket": BUCKET}
    data["artifactRepository"] = yaml.safe_dump(repository)
    data |= {"metricsConfig": "enabled: false\n", "telemetryConfig": "enabled: false\n"}
    return {**patch, "metadata": {**patch["metadata"], "namespace": NAMESPACE}, "data": data}


def argo_settings_of(dist: Dist, store: Store) -> Object:
    folder = dist.source / "manifests" / "kustomize" / "third-party" / "argo" / "base"
    [patch] = load([folder / "workflow-controller-configmap-patch.yaml"])
    return argo_settings(patch, store)


def store_secret(namespace: str, store: Store) -> Object:
    pairs = {"accesskey": store.access_key, "secretkey": store.secret_key}
    data = {name: base64.b64encode(value.encode()).decode() for name, value in pairs.items()}
    return _object("v1", "Secret", "mlpipeline-minio-artifact", namespace, data=data)


def launcher_settings(namespace: str, store: Store) -> Object:
    """The store of steps' outputs. Upstream names no provider: its store has a fixed name, and this one a port."""
    secret = {"secretName": "mlpipeline-minio-artifact", "accessKeyKey": "accesskey", "secretKeyKey": "secretkey"}
    provider = {
        "endpoint": store.endpoint, "region": "minio", "disableSSL": True, "forcePathStyle": True,
        "credentials": {"fromEnv": False, "secretRef": secret},
    }  # fmt: skip
    data = {
        "defaultPipelineRoot": f"minio://{BUCKET}/private-artifacts/{namespace}/v2/artifacts",
        "clusterDomain": ".svc.cluster.local",
        "providers": yaml.safe_dump({"minio": {"default": provider}}),
    }
    return _object("v1", "ConfigMap", "kfp-launcher", namespace, data=data)


def profile_objects(namespace: str, store: Store) -> list[Object]:
    """A user's namespace with all that KFP's steps find in it."""
    metadata = {
        "METADATA_GRPC_SERVICE_HOST": f"metadata-grpc-service.{NAMESPACE}",
        "METADATA_GRPC_SERVICE_PORT": "8080",
    }
    return [
        store_secret(namespace, store),
        launcher_settings(namespace, store),
        _object("v1", "ConfigMap", "metadata-grpc-configmap", namespace, data=metadata),
        _artifact_repositories(namespace, store),
        _object("v1", "ServiceAccount", MEMBER, namespace),
        # Kubeflow's own kubeflow-edit is the sum of these two.
        *(_binding(namespace, role) for role in ("edit", "kubeflow-pipelines-edit")),
    ]


def _artifact_repositories(namespace: str, store: Store) -> Object:
    """The place of steps' logs, as pipelines-profile-controller/sync.py of KFP writes it."""
    created = "/".join(f"{{{{workflow.creationTimestamp.{part}}}}}" for part in "Ymd")
    secrets = {
        f"{name}KeySecret": {"name": "mlpipeline-minio-artifact", "key": f"{name}key"}
        for name in ("access", "secret")
    }
    s3 = {
        "endpoint": store.endpoint, "bucket": BUCKET, "insecure": True, **secrets,
        "keyFormat": f"private-artifacts/{namespace}/{{{{workflow.name}}}}/{created}/{{{{pod.name}}}}",
    }  # fmt: skip
    data = {"default-namespaced": json.dumps({"archiveLogs": True, "s3": s3})}
    settings = _object("v1", "ConfigMap", "artifact-repositories", namespace, data=data)
    settings["metadata"]["annotations"] = {"workflows.argoproj.io/default-artifact-repository": "default-namespaced"}
    return settings


def _binding(namespace: str, role: str) -> Object:
    group = "rbac.authorization.k8s.io"
    subjects = [
        {"kind": "ServiceAccount", "name": MEMBER, "namespace": namespace},
        {"kind": "User", "name": PERSON, "apiGroup": group},
    ]
    reference = {"apiGroup": group, "kind": "ClusterRole", "name": role}
    return _object(f"{group}/v1", "RoleBinding", f"{MEMBER}-{role}", namespace, roleRef=reference, subjects=subjects)


def namespaces(names: Iterable[str]) -> list[Object]:
    return [{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}} for name in names]


def _object(version: str, kind: str, name: str, namespace: str, **fields: Any) -> Object:
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name, "namespace": namespace}, **fields}
