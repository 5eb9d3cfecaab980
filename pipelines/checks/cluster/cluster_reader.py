"""Read the cluster objects that a graph needs, with the rights of the person who submits it."""

import os
from base64 import b64decode
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from pipelines.checks.cluster.access_review import KFP_PERMISSIONS, ROLLOUT_PERMISSIONS, denied_permissions
from pipelines.checks.cluster.cluster_snapshot import ClusterSnapshot, Node, Platform, Quota, StoreAnswer, StoreSecret
from pipelines.checks.cluster.gateway_checks import GATEWAY_FILE
from pipelines.checks.cluster.input_checks import in_other_bucket, root_without_address
from pipelines.checks.cluster.requirements import RequiredObject, Requirements, RolloutTarget
from pipelines.checks.cluster.store_probe import Probe, probe_input, probe_store
from pipelines.graph.store_secret import FETCH_ENDPOINT, STORE_ENDPOINT
from qinglan.errors import ConfigError
from qinglan.jobs.cluster.rbac import LAUNCHER_PERMISSIONS, Permission
from qinglan.kubernetes.kubeconfig import load_login

TIMEOUTS = (5, 30)
"""Time limits in seconds: to connect, and to answer."""

JOBS_API, ROLLOUTS_API = "/apis/kubeflow.org/v1", "/apis/qinglan.dev/v1alpha1"
NOT_FOUND, FORBIDDEN, UNAUTHORIZED = 404, 403, 401
MOUNTED_TOKEN = Path("/var/run/secrets/kubernetes.io/serviceaccount/token")
USUAL_FILE = "~/.kube/config"
IMAGES_LABEL, BY_TAG = "qinglan.dev/images", "qinglan.dev/images-by-tag"
"""Label and annotation of a namespace: manifests/platform/images-by-digest.yaml."""

GUARDED = "qinglan.dev/guarded"
"""The label of a namespace that our manifests made: manifests/base/namespace.yaml."""


DEFAULT_CLASS = "storageclass.kubernetes.io/is-default-class"
CONTROLLERS = {
    "serving.kserve.io": ("kserve", "kserve-controller-manager"),
    "kubeflow.org": ("kubeflow", "training-operator"),
    "trainer.kubeflow.org": ("kubeflow-system", "kubeflow-trainer-controller-manager"),
    "ray.io": ("default", "kuberay-operator"),
    "serving.knative.dev": ("knative-serving", "controller"),
}
"""Namespace and Deployment of the controller of a group, where its own installation puts it."""

LAUNCHER, USUAL_ROOT = "kfp-launcher", "minio://mlpipeline/v2/artifacts"
"""KFP's settings of a namespace, and the pipeline root where they name none."""

ROLE = "eks.amazonaws.com/role-arn"
"""The annotation of a service account that is an identity of AWS."""


def connect() -> Any:
    """A client for the cluster that KUBECONFIG names, or for the one that this pod is in."""
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


def read_cluster(api: Any, needs: Requirements, namespace: str) -> ClusterSnapshot:
    """Read a snapshot of everything that the graph needs."""
    return _ClusterReader(api, namespace).snapshot(needs)


def read_platform(api: Any) -> Platform:
    """Read versions, kinds and storage classes; a part that may not be read is left out."""
    from kubernetes import client

    reader = _ClusterReader(api, "default")
    groups = reader.read("kinds", lambda: client.ApisApi(api).get_api_versions(_request_timeout=TIMEOUTS))
    version = reader.read("version", lambda: client.VersionApi(api).get_code(_request_timeout=TIMEOUTS))
    listed = reader.read("classes", lambda: client.StorageV1Api(api).list_storage_class(_request_timeout=TIMEOUTS))
    classes = {item.metadata.name: item.metadata.annotations or {} for item in (listed.items if listed else ())}
    apps = client.AppsV1Api(api)
    images = {}
    for group, (namespace, name) in CONTROLLERS.items():
        read = partial(apps.read_namespaced_deployment, name, namespace, _request_timeout=TIMEOUTS)
        if deployment := reader.read(f"Deployment {name}", read):
            images[group] = str(deployment.spec.template.spec.containers[0].image).rpartition("/")[2]
    return Platform(
        api.configuration.host,
        str(version.git_version) if version else "of an unknown version",
        {group.name: group.preferred_version.version for group in (groups.groups if groups else ())},
        images,
        tuple(sorted(classes)),
        next((name for name, notes in sorted(classes.items()) if notes.get(DEFAULT_CLASS) == "true"), ""),
    )


class _ClusterReader:
    """Reads a cluster once. What may not be read is recorded in `_unread` and does not stop the rest."""

    def __init__(self, api: Any, namespace: str) -> None:
        self._api, self._namespace = api, namespace
        self._unread: list[str] = []
        self._unbound: set[str] = set()
        self._claim_bytes: dict[str, float] = {}
        self._without_token: set[str] = set()
        self._cloud_identity = False

    def snapshot(self, needs: Requirements) -> ClusterSnapshot:
        namespace = self._named_namespace()
        jobs = any(machine.job for machine in needs.machines)
        root, providers = self._launcher_settings() if needs.inputs else (None, "")
        secrets = self._store_secrets(needs)
        snapshot = ClusterSnapshot(
            self._namespace,
            self._objects(needs.objects),
            self._nodes() if needs.machines else (),
            self._quotas() if needs.machines else (),
            self._kinds(JOBS_API) if jobs else frozenset(),
            self._denied(needs, LAUNCHER_PERMISSIONS) if jobs else (),
            kfp_denied=self._denied(needs, KFP_PERMISSIONS),
            guarded=namespace and (namespace.metadata.labels or {}).get(GUARDED) == "true",
            by_tag=_by_tag(namespace),
            pipeline_root=root,
            root_without_address=bool(root) and root_without_address(str(root), providers),
            stores={name: None if data is None else _store_secret(data) for name, data in secrets.items()},
        )
        return self._with_rollouts(needs, snapshot)._replace(
            unbound=frozenset(self._unbound),
            claim_bytes=self._claim_bytes,
            without_token=frozenset(self._without_token),
            cloud_identity=self._cloud_identity,
            answers=self._answers(needs, secrets, root),
            gateway=self._gateway_settings(needs),
            unread=tuple(dict.fromkeys(self._unread)),
        )

    def _with_rollouts(self, needs: Requirements, snapshot: ClusterSnapshot) -> ClusterSnapshot:
        """The snapshot, extended by what deploying steps need for their rollouts."""
        if not needs.rollouts:
            return snapshot
        absent = frozenset(target.namespace for target in needs.rollouts if self._is_absent(target))
        present = [target.namespace for target in needs.rollouts if target.namespace not in absent]
        denied = {namespace: self._denied(needs, ROLLOUT_PERMISSIONS, namespace) for namespace in present}
        return snapshot._replace(
            rollout_kinds=self._kinds(ROLLOUTS_API), absent_namespaces=absent, rollout_denied=denied
        )

    def _is_absent(self, target: RolloutTarget) -> bool:
        from kubernetes import client

        before = len(self._unread)
        read = partial(client.CoreV1Api(self._api).read_namespace, target.namespace, _request_timeout=TIMEOUTS)
        absent = self.read(f"namespace {target.namespace}", read) is None
        return absent and len(self._unread) == before

    def _named_namespace(self) -> Any:
        """Read the run's namespace; None if it may not be read, a ConfigError if it does not exist."""
        from kubernetes import client

        answer = self.read(
            f"namespace {self._namespace}",
            lambda: client.CoreV1Api(self._api).read_namespace(self._namespace, _request_timeout=TIMEOUTS),
        )
        if answer is None and not self._unread:
            raise ConfigError(
                f"The cluster has no namespace {self._namespace}. Give --namespace where the run's pods shall be."
            )
        self._unread.clear()  # reading its objects will show whether it exists
        return answer

    def _objects(self, required: Iterable[RequiredObject]) -> dict[tuple[str, str], frozenset[str] | None]:
        from kubernetes import client

        core = client.CoreV1Api(self._api)
        readers = {
            "Secret": core.read_namespaced_secret,
            "ConfigMap": core.read_namespaced_config_map,
            "PersistentVolumeClaim": core.read_namespaced_persistent_volume_claim,
            "ServiceAccount": core.read_namespaced_service_account,
            "Service": core.read_namespaced_service,
        }
        objects: dict[tuple[str, str], frozenset[str] | None] = {}
        for need in required:
            before = len(self._unread)
            value = self._object(readers[need.kind], need)
            if len(self._unread) == before:
                objects[need.kind, need.name] = (
                    None if value is None else frozenset(getattr(value, "data", None) or ())
                )
        return objects

    def _object(self, reader: Callable[..., Any], need: RequiredObject) -> Any:
        answer = self.read(
            f"{need.kind} {need.name}", lambda: reader(need.name, self._namespace, _request_timeout=TIMEOUTS)
        )
        if need.kind == "ServiceAccount" and answer is not None:
            self._account(answer)
        if need.kind != "PersistentVolumeClaim" or answer is None:
            return answer
        self._claim_bytes[need.name] = _claim_bytes(answer)
        if answer.status.phase == "Pending":
            self._unbound.add(need.name)
        return None if answer.status.phase == "Lost" else answer

    def _account(self, account: Any) -> None:
        """Record whether its pods get a token for the API server, and how they reach S3."""
        if account.automount_service_account_token is False:
            self._without_token.add(account.metadata.name)
        self._cloud_identity = ROLE in (account.metadata.annotations or {})

    def _launcher_settings(self) -> tuple[str | None, str]:
        """The pipeline root, whose key KFP's launcher has, and KFP's settings of stores (`providers`)."""
        from kubernetes import client

        before = len(self._unread)
        settings = self.read(
            f"ConfigMap {LAUNCHER}",
            lambda: client.CoreV1Api(self._api).read_namespaced_config_map(
                LAUNCHER, self._namespace, _request_timeout=TIMEOUTS
            ),
        )
        if len(self._unread) > before:
            return None, ""
        data = (settings and settings.data) or {}
        return str(data.get("defaultPipelineRoot") or USUAL_ROOT), str(data.get("providers") or "")

    def _store_secrets(self, needs: Requirements) -> dict[str, dict[str, str] | None]:
        """The Secrets of stores by name: None if it does not exist; those that may not be read are left out."""
        from kubernetes import client

        secrets: dict[str, dict[str, str] | None] = {}
        names = {use.secret for use in needs.inputs} | {store.secret for store in needs.releases}
        for name in names - {""}:
            before = len(self._unread)
            read = partial(client.CoreV1Api(self._api).read_namespaced_secret, name, self._namespace)
            secret = self.read(f"Secret {name}", partial(read, _request_timeout=TIMEOUTS))
            if len(self._unread) == before:
                secrets[name] = None if secret is None else _decoded(secret.data or {})
        return secrets

    def _gateway_settings(self, needs: Requirements) -> str | None:
        """gateway.yaml in the ConfigMap that the gateway's Deployment mounts, whose name changes with its content."""
        from kubernetes import client

        names = [need.name for need in needs.objects if need.kind == "Service"]
        if not names:
            return None
        read = partial(client.AppsV1Api(self._api).read_namespaced_deployment, names[0], self._namespace)
        deployment = self.read(f"Deployment {names[0]}", partial(read, _request_timeout=TIMEOUTS))
        volumes = deployment.spec.template.spec.volumes or () if deployment else ()
        for volume in volumes:
            if volume.config_map is None:
                continue
            name = volume.config_map.name
            read = partial(client.CoreV1Api(self._api).read_namespaced_config_map, name, self._namespace)
            config = self.read(f"ConfigMap {name}", partial(read, _request_timeout=TIMEOUTS))
            if config is not None and GATEWAY_FILE in (config.data or {}):
                return str(config.data[GATEWAY_FILE])
        return None

    def _answers(
        self, needs: Requirements, secrets: Mapping[str, dict[str, str] | None], root: str | None
    ) -> dict[str, StoreAnswer]:
        """Try each input and store with the steps' key; returns the unreadable addresses, with the reason."""
        tries: dict[str, tuple[Probe, str]] = {
            uri: (probe_input, use.secret) for use in needs.inputs for uri in use.uris if in_other_bucket(uri, root)
        }
        tries |= {store.address: (probe_store, store.secret) for store in needs.releases}
        answers = {
            address: answer
            for address, (probe, name) in tries.items()
            if (secret := secrets.get(name)) and (answer := probe(address, secret))
        }
        silent = {address: answer.why for address, answer in answers.items() if answer.state == "silent"}
        self._unread += [f"{address} could not be read: {why}." for address, why in silent.items()]
        return answers

    def _nodes(self) -> tuple[Node, ...] | None:
        from kubernetes import client

        nodes = self.read("nodes", lambda: client.CoreV1Api(self._api).list_node(_request_timeout=TIMEOUTS))
        return None if nodes is None else tuple(_node(node) for node in nodes.items)

    def _quotas(self) -> tuple[Quota, ...] | None:
        from kubernetes import client

        quotas = self.read(
            "resource quotas",
            lambda: client.CoreV1Api(self._api).list_namespaced_resource_quota(
                self._namespace, _request_timeout=TIMEOUTS
            ),
        )
        return (
            None
            if quotas is None
            else tuple(quota for resource_quota in quotas.items for quota in _quotas_of(resource_quota))
        )

    def _kinds(self, group: str) -> frozenset[str] | None:
        """Read from the API server's list of resources, which everyone may read."""
        before = len(self._unread)
        kinds = self.read(f"kinds of {group}", lambda: self._get(group))
        if len(self._unread) > before:
            return None
        return frozenset(kind["name"] for kind in (kinds or {}).get("resources", ()))

    def _get(self, path: str) -> Any:
        return self._api.call_api(
            path, "GET", auth_settings=["BearerToken"], response_type="object", _return_http_data_only=True,
            _request_timeout=TIMEOUTS, header_params={"Accept": "application/json"},
        )  # fmt: skip

    def _denied(
        self, needs: Requirements, permissions: Iterable[Permission], namespace: str = ""
    ) -> tuple[Permission, ...]:
        account = (self._namespace, needs.service_account)
        return denied_permissions(self._api, self.read, account, namespace or self._namespace, permissions)

    def read(self, what: str, call: Callable[[], Any]) -> Any:
        """Call the API for an object; None if it does not exist, or may not be read, which is recorded."""
        from kubernetes.client import ApiException
        from urllib3.exceptions import HTTPError

        host = self._api.configuration.host
        try:
            return call()
        except ApiException as error:
            if error.status == NOT_FOUND:
                return None
            if error.status == UNAUTHORIZED:
                raise ConfigError(
                    f"{host} does not know you (401): its token or certificate is missing, has expired, or is "
                    "another cluster's. Log in to the cluster again, or add --skip-checks."
                ) from error
            why = "you may not read it" if error.status == FORBIDDEN else f"the API server said {error.status}"
            self._unread.append(f"{what} could not be checked: {why}.")
        except HTTPError as error:
            raise ConfigError(
                f"{host}, which KUBECONFIG names, gives no answer ({_reason(error)}). Is it the right cluster? "
                "--skip-checks goes on without looking."
            ) from error
        return None


def _reason(error: Exception) -> str:
    return str(getattr(error, "reason", None) or error)


def _by_tag(namespace: Any) -> frozenset[str] | None:
    """Images that need no digest, in a namespace that admits images by digest only; None in any other."""
    if namespace is None or (namespace.metadata.labels or {}).get(IMAGES_LABEL) != "by-digest":
        return None
    return frozenset((namespace.metadata.annotations or {}).get(BY_TAG, "").split())


def _decoded(data: Mapping[str, str]) -> dict[str, str]:
    return {name: b64decode(value or "").decode("utf-8", "replace").strip() for name, value in data.items()}


def _store_secret(secret: Mapping[str, str]) -> StoreSecret:
    """A store's Secret without its values, except the addresses."""
    filled = frozenset(name for name, value in secret.items() if value)
    return StoreSecret(filled, secret.get(FETCH_ENDPOINT, ""), secret.get(STORE_ENDPOINT, ""))


def _claim_bytes(claim: Any) -> float:
    requested = claim.spec.resources.requests if claim.spec.resources else None
    return _count((claim.status.capacity or requested or {}).get("storage", "0"))


def _node(node: Any) -> Node:
    counts = {name: _count(value) for name, value in (node.status.allocatable or {}).items()}
    return Node(node.metadata.name, node.metadata.labels or {}, counts)


def _quotas_of(resource_quota: Any) -> Iterable[Quota]:
    hard, used = resource_quota.status.hard or resource_quota.spec.hard or {}, resource_quota.status.used or {}
    for resource, value in hard.items():
        yield Quota(resource_quota.metadata.name, resource, _count(value), _count(used.get(resource, "0")))


def _count(quantity: str) -> float:
    from kubernetes.utils.quantity import parse_quantity

    return float(parse_quantity(quantity))
