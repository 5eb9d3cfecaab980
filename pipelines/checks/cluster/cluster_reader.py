"""Read the cluster objects that a graph needs, with the rights of the person who submits it."""

import os
from base64 import b64decode
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from pipelines.checks.cluster.cluster_snapshot import ClusterSnapshot, Node, Platform, Quota, StoreAnswer
from pipelines.checks.cluster.gateway_checks import GATEWAY_FILE
from pipelines.checks.cluster.requirements import RequiredObject, Requirements
from pipelines.checks.cluster.store_probe import in_other_bucket, probe_input, probe_store
from qinglan.errors import ConfigError
from qinglan.jobs.cluster.rbac import LAUNCHER_PERMISSIONS, Permission
from qinglan.kubernetes.kubeconfig import load_login

TIMEOUTS = (5, 30)
"""Time limits in seconds: to connect, and to answer."""

CORE, APPS = "/api/v1", "/apis/apps/v1"
JOBS_API, ROLLOUTS_API = "/apis/kubeflow.org/v1", "/apis/qinglan.dev/v1alpha1"
PLURALS = {
    "Secret": "secrets", "ConfigMap": "configmaps", "PersistentVolumeClaim": "persistentvolumeclaims",
    "ServiceAccount": "serviceaccounts", "Service": "services",
}  # fmt: skip
MOUNTED_TOKEN = Path("/var/run/secrets/kubernetes.io/serviceaccount/token")
USUAL_FILE = "~/.kube/config"
IMAGES_LABEL, BY_TAG = "qinglan.dev/images", "qinglan.dev/images-by-tag"
"""Label of a namespace that takes images by digest only, and annotation with its exceptions
(manifests/platform/images-by-digest.yaml)."""

GUARDED = "qinglan.dev/guarded"
"""Label of a namespace that our manifests made: manifests/base/namespace.yaml."""

DEFAULT_CLASS = "storageclass.kubernetes.io/is-default-class"
CONTROLLERS = {
    "serving.kserve.io": ("kserve", "kserve-controller-manager"),
    "kubeflow.org": ("kubeflow", "training-operator"),
    "trainer.kubeflow.org": ("kubeflow-system", "kubeflow-trainer-controller-manager"),
    "ray.io": ("default", "kuberay-operator"),
    "serving.knative.dev": ("knative-serving", "controller"),
}
"""Namespace and Deployment of each API group's controller, as the controller's own installation names them."""

LAUNCHER, USUAL_ROOT = "kfp-launcher", "minio://mlpipeline/v2/artifacts"
"""ConfigMap with KFP's settings of a namespace, and the pipeline root that KFP uses without it
(https://www.kubeflow.org/docs/components/pipelines/operator-guides/configure-object-store/)."""

ROLE = "eks.amazonaws.com/role-arn"
"""Annotation of a service account that has an AWS identity."""

KFP_PERMISSIONS = (
    Permission("argoproj.io", "workflowtaskresults", ("create", "patch")),
    Permission("", "configmaps", ("get",), LAUNCHER),
)
"""Rights of each pod of KFP 2.17: Argo's executor reports the pod's end, driver and launcher read settings."""

ROLLOUT_PERMISSIONS = (Permission("qinglan.dev", "modelrollouts", ("create", "get", "list")),)
"""Rights that the deploy stage needs in the rollout's namespace."""


def connect() -> Any:
    """Return a client for the cluster that KUBECONFIG names, or for the cluster in which this pod runs."""
    from kubernetes import client

    named, configuration = os.environ.get("KUBECONFIG", ""), client.Configuration()
    try:
        load_login("" if not named and MOUNTED_TOKEN.is_file() else named or USUAL_FILE, configuration)
    except ConfigError as error:
        raise ConfigError(
            f"{error} What the run needs cannot be checked: set KUBECONFIG to the file of the cluster that KFP runs "
            "on, or add --skip-checks."
        ) from error
    configuration.retries = 1
    return client.ApiClient(configuration)


def read_platform(api: Any) -> Platform:
    """Read versions, kinds and storage classes; a part that may not be read is left out."""
    reader = ClusterReader(api, "default")
    groups, version = reader.get("kinds", "/apis") or {}, reader.get("version", "/version") or {}
    listed = reader.get("classes", "/apis/storage.k8s.io/v1/storageclasses") or {}
    classes = {item["metadata"]["name"]: item["metadata"].get("annotations", {}) for item in listed.get("items", ())}
    images = {}
    for group, (namespace, name) in CONTROLLERS.items():
        if deployment := reader.get(f"Deployment {name}", f"{APPS}/namespaces/{namespace}/deployments/{name}"):
            images[group] = deployment["spec"]["template"]["spec"]["containers"][0]["image"].rpartition("/")[2]
    return Platform(
        api.configuration.host,
        str(version.get("gitVersion", "of an unknown version")),
        {group["name"]: group["preferredVersion"]["version"] for group in groups.get("groups", ())},
        images,
        tuple(sorted(classes)),
        next((name for name, notes in sorted(classes.items()) if notes.get(DEFAULT_CLASS) == "true"), ""),
    )


def read_cluster(api: Any, needs: Requirements, namespace: str) -> ClusterSnapshot:
    return ClusterReader(api, namespace).snapshot(needs)


class ClusterReader:
    """Reads a cluster once. Objects that may not be read are recorded in `unread` and do not stop the rest."""

    def __init__(self, api: Any, namespace: str) -> None:
        self._api, self._namespace, self._folder = api, namespace, f"{CORE}/namespaces/{namespace}"
        self.unread: list[str] = []

    def snapshot(self, needs: Requirements) -> ClusterSnapshot:
        namespace = self.get(f"namespace {self._namespace}", self._folder)
        if namespace == {}:
            raise ConfigError(
                f"The cluster has no namespace {self._namespace}. Give --namespace where the run's pods shall be."
            )
        # A person who may not read the namespace may still read its objects, so this is no finding.
        self.unread.clear()
        labels, notes = (
            ((namespace or {}).get("metadata", {}).get(part) or {}) for part in ("labels", "annotations")
        )
        objects = {(need.kind, need.name): self._object(need) for need in needs.objects}
        jobs = any(machine.job for machine in needs.machines)
        root = self._pipeline_root() if needs.inputs else None
        names = {use.secret for use in needs.inputs} | {store.secret for store in needs.releases}
        secrets = {name: self._secret(name) for name in names - {""}}
        account = objects.get(("ServiceAccount", needs.service_account)) or {}
        rollouts = {target.namespace: self._exists(target.namespace) for target in needs.rollouts}
        return ClusterSnapshot(
            self._namespace,
            {
                key: frozenset(value.get("data") or ()) if value else None
                for key, value in objects.items()
                if value is not None
            },
            nodes=self._nodes() if needs.machines else (),
            quotas=self._quotas() if needs.machines else (),
            job_kinds=self._kinds(JOBS_API) if jobs else frozenset(),
            denied=self._denied(needs, LAUNCHER_PERMISSIONS) if jobs else (),
            kfp_denied=self._denied(needs, KFP_PERMISSIONS),
            rollout_kinds=self._kinds(ROLLOUTS_API) if needs.rollouts else frozenset(),
            rollout_denied={
                name: self._denied(needs, ROLLOUT_PERMISSIONS, name) for name, exists in rollouts.items() if exists
            },
            absent_namespaces=frozenset(name for name, exists in rollouts.items() if not exists),
            guarded=labels.get(GUARDED) == "true" if namespace else None,
            by_tag=frozenset(notes.get(BY_TAG, "").split()) if labels.get(IMAGES_LABEL) == "by-digest" else None,
            claim_bytes={
                name: _claim_bytes(value)
                for (kind, name), value in objects.items()
                if kind == "PersistentVolumeClaim" and value
            },
            cloud_identity=ROLE in (account.get("metadata", {}).get("annotations") or {}),
            pipeline_root=root,
            stores={
                name: frozenset(key for key, text in values.items() if text) if values else None
                for name, values in secrets.items()
                if values is not None
            },
            answers=self._answers(needs, secrets, root),
            gateway=self._gateway_settings(needs),
            unread=tuple(dict.fromkeys(self.unread)),
        )

    def get(self, what: str, path: str, body: Any = None) -> dict[str, Any] | None:
        """Return the API server's answer; {} if the object does not exist, None if it may not be read."""
        from kubernetes.client import ApiException
        from urllib3.exceptions import HTTPError

        host = self._api.configuration.host
        try:
            return dict(self._api.call_api(
                path, "POST" if body else "GET", body=body, auth_settings=["BearerToken"], response_type="object",
                _return_http_data_only=True, _request_timeout=TIMEOUTS,
                header_params={"Accept": "application/json", "Content-Type": "application/json"},
            ))  # fmt: skip
        except ApiException as error:
            if error.status == 404:
                return {}
            if error.status == 401:
                raise ConfigError(
                    f"{host} does not know you (401): its token or certificate is missing, has expired, or is "
                    "another cluster's. Log in to the cluster again, or add --skip-checks."
                ) from error
            why = "you may not read it" if error.status == 403 else f"the API server said {error.status}"
            self.unread.append(f"{what} could not be checked: {why}.")
        except HTTPError as error:
            raise ConfigError(
                f"{host}, which KUBECONFIG names, gives no answer ({getattr(error, 'reason', None) or error}). Is it "
                "the right cluster? --skip-checks goes on without looking."
            ) from error
        return None

    def _object(self, need: RequiredObject) -> dict[str, Any] | None:
        value = self.get(f"{need.kind} {need.name}", f"{self._folder}/{PLURALS[need.kind]}/{need.name}")
        # A claim is Lost if its volume was deleted. It counts as missing, because pods would wait for it for ever.
        lost = need.kind == "PersistentVolumeClaim" and value and value["status"].get("phase") == "Lost"
        return {} if lost else value

    def _exists(self, namespace: str) -> bool:
        return self.get(f"namespace {namespace}", f"{CORE}/namespaces/{namespace}") != {}

    def _pipeline_root(self) -> str | None:
        settings = self.get(f"ConfigMap {LAUNCHER}", f"{self._folder}/configmaps/{LAUNCHER}")
        if settings is None:
            return None
        return str((settings.get("data") or {}).get("defaultPipelineRoot") or USUAL_ROOT)

    def _secret(self, name: str) -> dict[str, str] | None:
        secret = self.get(f"Secret {name}", f"{self._folder}/secrets/{name}")
        if secret is None:
            return None
        values = (secret.get("data") or {}).items()
        return {key: b64decode(value or "").decode("utf-8", "replace").strip() for key, value in values}

    def _gateway_settings(self, needs: Requirements) -> str | None:
        """Read gateway.yaml from the ConfigMap that the gateway's Deployment names, because this name changes with
        the content. None if it cannot be read."""
        for need in needs.objects:
            if need.kind != "Service":
                continue
            path = f"{APPS}/namespaces/{self._namespace}/deployments/{need.name}"
            deployment = self.get(f"Deployment {need.name}", path) or {}
            pod = deployment.get("spec", {}).get("template", {}).get("spec", {})
            for name in (volume.get("configMap", {}).get("name") for volume in pod.get("volumes") or ()):
                settings = self.get(f"ConfigMap {name}", f"{self._folder}/configmaps/{name}") if name else None
                if settings and GATEWAY_FILE in (settings.get("data") or {}):
                    return str(settings["data"][GATEWAY_FILE])
        return None

    def _answers(
        self, needs: Requirements, secrets: Mapping[str, dict[str, str] | None], root: str | None
    ) -> dict[str, StoreAnswer]:
        """Try each input and store with the steps' key; returns the unreadable addresses, with the reason."""
        uris = [
            (uri, use.secret, probe_input) for use in needs.inputs for uri in use.uris if in_other_bucket(uri, root)
        ]
        answers = {}
        for uri, name, probe in [*uris, *((store.address, store.secret, probe_store) for store in needs.releases)]:
            if (secret := secrets.get(name)) and (answer := probe(uri, secret)):
                answers[uri] = answer
                if answer.state == "silent":
                    self.unread.append(f"{uri} could not be read: {answer.why}.")
        return answers

    def _nodes(self) -> tuple[Node, ...] | None:
        listed = self.get("nodes", f"{CORE}/nodes")
        return None if listed is None else tuple(
            Node(item["metadata"]["name"], item["metadata"].get("labels", {}), {
                name: _count(value) for name, value in item["status"].get("allocatable", {}).items()
            })
            for item in listed["items"]
        )  # fmt: skip

    def _quotas(self) -> tuple[Quota, ...] | None:
        listed = self.get("resource quotas", f"{self._folder}/resourcequotas")
        if listed is None:
            return None
        return tuple(
            Quota(item["metadata"]["name"], resource, _count(value))
            for item in listed["items"]
            for resource, value in (item["status"].get("hard") or item["spec"].get("hard") or {}).items()
        )

    def _kinds(self, group: str) -> frozenset[str] | None:
        """Return the resources of an API group, from the API server's list, which everyone may read."""
        kinds = self.get(f"kinds of {group}", group)
        return None if kinds is None else frozenset(kind["name"] for kind in kinds.get("resources", ()))

    def _denied(
        self, needs: Requirements, permissions: Iterable[Permission], namespace: str = ""
    ) -> tuple[Permission, ...]:
        """Return the permissions that the run's service account lacks in a namespace, by default in its own."""
        denied = []
        for permission in permissions:
            verbs = [
                verb
                for verb in permission.verbs
                if self._may(needs.service_account, namespace or self._namespace, permission, verb) is False
            ]
            denied += [permission._replace(verbs=tuple(verbs))] if verbs else []
        return tuple(denied)

    def _may(self, account: str, namespace: str, permission: Permission, verb: str) -> bool | None:
        """Ask the API server if the account may use this verb; None if that may not be asked
        (https://kubernetes.io/docs/reference/access-authn-authz/authorization/)."""
        resource, _, part = permission.resource.partition("/")
        # A review of another user does not add the groups that the API server gives a service account when it logs
        # in.
        groups = ["system:serviceaccounts", f"system:serviceaccounts:{self._namespace}", "system:authenticated"]
        spec = {
            "user": f"system:serviceaccount:{self._namespace}:{account}",
            "groups": groups,
            "resourceAttributes": {
                "namespace": namespace, "verb": verb, "group": permission.group, "resource": resource,
                "subresource": part, "name": permission.name,
            },
        }  # fmt: skip
        api = "/apis/authorization.k8s.io/v1"
        answer = self.get(
            f"the rights of ServiceAccount {account} in namespace {namespace}",
            f"{api}/namespaces/{namespace}/localsubjectaccessreviews",
            {
                "apiVersion": "authorization.k8s.io/v1", "kind": "LocalSubjectAccessReview",
                "metadata": {"namespace": namespace}, "spec": spec,
            },
        )  # fmt: skip
        return None if answer is None else bool(answer["status"].get("allowed"))


def _claim_bytes(claim: Mapping[str, Any]) -> float:
    requested = claim["spec"].get("resources", {}).get("requests")
    return _count((claim["status"].get("capacity") or requested or {}).get("storage", "0"))


def _count(quantity: str) -> float:
    from kubernetes.utils.quantity import parse_quantity

    return float(parse_quantity(quantity))
