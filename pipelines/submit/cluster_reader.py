"""A snapshot of the cluster objects that a graph needs, read with the rights of whoever submits."""

import os
from base64 import b64decode
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from pipelines.store_secret import FETCH_ENDPOINT, STORE_ENDPOINT
from pipelines.submit.cluster_snapshot import ClusterSnapshot, Node, Quota, StoreSecret
from pipelines.submit.input_checks import root_without_address
from pipelines.submit.requirements import ImportedInputs, RequiredObject, Requirements
from qinglan.errors import ConfigError
from qinglan.jobs.rbac import LAUNCHER_PERMISSIONS, Permission
from qinglan.kubernetes.kubeconfig import load_login

TIMEOUTS = (5, 30)
"""To connect, and to answer."""

JOBS_API = "/apis/kubeflow.org/v1"
NOT_FOUND, FORBIDDEN, UNAUTHORIZED = 404, 403, 401
MOUNTED_TOKEN = Path("/var/run/secrets/kubernetes.io/serviceaccount/token")
USUAL_FILE = "~/.kube/config"
IMAGES_LABEL, BY_TAG = "qinglan.dev/images", "qinglan.dev/images-by-tag"
"""Label and annotation of a namespace: manifests/platform/images-by-digest.yaml."""


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
    """Everything that the graph needs, as it is now."""
    return _ClusterReader(api, namespace).at(needs)


class _ClusterReader:
    """One look at a cluster; what may not be read is noted, and is no reason to stop."""

    def __init__(self, api: Any, namespace: str) -> None:
        self._api, self._namespace = api, namespace
        self._unread: list[str] = []
        self._unbound: set[str] = set()
        self._claim_bytes: dict[str, float] = {}
        self._without_token: set[str] = set()
        self._cloud_identity = False

    def at(self, needs: Requirements) -> ClusterSnapshot:
        by_tag = self._by_tag(self._named_namespace())
        jobs = any(machine.job for machine in needs.machines)
        root, providers = self._launcher_settings() if needs.inputs else (None, "")
        snapshot = ClusterSnapshot(
            self._namespace,
            self._objects(needs.objects),
            self._nodes() if needs.machines else (),
            self._quotas() if needs.machines else (),
            self._job_kinds() if jobs else frozenset(),
            self._denied(needs.service_account) if jobs else (),
            by_tag=by_tag,
            pipeline_root=root,
            root_without_address=bool(root) and root_without_address(str(root), providers),
            stores=self._stores(needs.inputs),
        )
        return snapshot._replace(
            unbound=frozenset(self._unbound),
            claim_bytes=self._claim_bytes,
            without_token=frozenset(self._without_token),
            cloud_identity=self._cloud_identity,
            unread=tuple(dict.fromkeys(self._unread)),
        )

    def _named_namespace(self) -> Any:
        """It is there; None where it may not be read."""
        from kubernetes import client

        answer = self._read(
            f"namespace {self._namespace}",
            lambda: client.CoreV1Api(self._api).read_namespace(self._namespace, _request_timeout=TIMEOUTS),
        )
        if answer is None and not self._unread:
            raise ConfigError(
                f"The cluster has no namespace {self._namespace}. Give --namespace where the run's pods shall be."
            )
        self._unread.clear()  # whether it is there, its objects will tell
        return answer

    def _by_tag(self, namespace: Any) -> frozenset[str] | None:
        """In a namespace of releases, the images that need no digest."""
        if namespace is None or (namespace.metadata.labels or {}).get(IMAGES_LABEL) != "by-digest":
            return None
        return frozenset((namespace.metadata.annotations or {}).get(BY_TAG, "").split())

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
        answer = self._read(
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
        """Notes how its pods reach the API server, and S3."""
        if account.automount_service_account_token is False:
            self._without_token.add(account.metadata.name)
        self._cloud_identity = ROLE in (account.metadata.annotations or {})

    def _launcher_settings(self) -> tuple[str | None, str]:
        """The pipeline root, whose key KFP's launcher has, and what KFP says of stores."""
        from kubernetes import client

        before = len(self._unread)
        settings = self._read(
            f"ConfigMap {LAUNCHER}",
            lambda: client.CoreV1Api(self._api).read_namespaced_config_map(
                LAUNCHER, self._namespace, _request_timeout=TIMEOUTS
            ),
        )
        if len(self._unread) > before:
            return None, ""
        data = (settings and settings.data) or {}
        return str(data.get("defaultPipelineRoot") or USUAL_ROOT), str(data.get("providers") or "")

    def _stores(self, inputs: Iterable[ImportedInputs]) -> dict[str, StoreSecret | None]:
        from kubernetes import client

        stores: dict[str, StoreSecret | None] = {}
        for name in {reference.secret for reference in inputs if reference.secret}:
            before = len(self._unread)
            read = partial(client.CoreV1Api(self._api).read_namespaced_secret, name, self._namespace)
            secret = self._read(f"Secret {name}", partial(read, _request_timeout=TIMEOUTS))
            if len(self._unread) == before:
                stores[name] = None if secret is None else _store_secret(secret.data or {})
        return stores

    def _nodes(self) -> tuple[Node, ...] | None:
        from kubernetes import client

        nodes = self._read("nodes", lambda: client.CoreV1Api(self._api).list_node(_request_timeout=TIMEOUTS))
        return None if nodes is None else tuple(_node(node) for node in nodes.items)

    def _quotas(self) -> tuple[Quota, ...] | None:
        from kubernetes import client

        quotas = self._read(
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

    def _job_kinds(self) -> frozenset[str] | None:
        """From the API server's own table of contents, which everyone may read."""
        before = len(self._unread)
        kinds = self._read("kinds of kubeflow.org", lambda: self._get(JOBS_API))
        if len(self._unread) > before:
            return None
        return frozenset(kind["name"] for kind in (kinds or {}).get("resources", ()))

    def _get(self, path: str) -> Any:
        return self._api.call_api(
            path, "GET", auth_settings=["BearerToken"], response_type="object", _return_http_data_only=True,
            _request_timeout=TIMEOUTS, header_params={"Accept": "application/json"},
        )  # fmt: skip

    def _denied(self, service_account: str) -> tuple[Permission, ...]:
        """The rights that launching takes and the account does not have."""
        denied = []
        for right in LAUNCHER_PERMISSIONS:
            verbs = [verb for verb in right.verbs if self._may(service_account, right, verb) is False]
            denied += [right._replace(verbs=tuple(verbs))] if verbs else []
        return tuple(denied)

    def _may(self, service_account: str, right: Permission, verb: str) -> bool | None:
        from kubernetes import client

        user = f"system:serviceaccount:{self._namespace}:{service_account}"
        groups = ["system:serviceaccounts", f"system:serviceaccounts:{self._namespace}", "system:authenticated"]
        resource, _, part = right.resource.partition("/")
        access = client.V1ResourceAttributes(
            namespace=self._namespace, verb=verb, group=right.group, resource=resource, subresource=part or None
        )
        review = client.V1LocalSubjectAccessReview(
            metadata=client.V1ObjectMeta(namespace=self._namespace),
            spec=client.V1SubjectAccessReviewSpec(user=user, groups=groups, resource_attributes=access),
        )
        answer = self._read(
            f"whether {service_account} may launch PyTorchJobs",
            lambda: client.AuthorizationV1Api(self._api).create_namespaced_local_subject_access_review(
                self._namespace, review, _request_timeout=TIMEOUTS
            ),
        )
        return None if answer is None else bool(answer.status.allowed)

    def _read(self, what: str, call: Callable[[], Any]) -> Any:
        """An object, or None: where there is none, or where it is noted among the unread."""
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


def _store_secret(data: Mapping[str, str]) -> StoreSecret:
    """The addresses in a Secret, decoded; its other values stay unread."""
    fetch, store = (
        b64decode(data.get(name) or "").decode("utf-8", "replace") for name in (FETCH_ENDPOINT, STORE_ENDPOINT)
    )
    return StoreSecret(frozenset(name for name, value in data.items() if value), fetch.strip(), store.strip())


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
