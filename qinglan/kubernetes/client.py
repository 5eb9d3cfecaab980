"""Client of the API server that takes and returns plain dicts. Each call has a time limit and is counted.

api = connect()
api.get("pytorchjobs", "sft-0123456789ab")
"""

import os
import re
import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any

import orjson

from qinglan.clock import steady_time
from qinglan.errors import ConfigError
from qinglan.kubernetes.api_errors import ApiError
from qinglan.kubernetes.kubeconfig import load_login

PATHS = {
    "pytorchjobs": "/apis/kubeflow.org/v1",
    "workflows": "/apis/argoproj.io/v1alpha1",
    "pods": "/api/v1",
    "events": "/api/v1",
    "modelrollouts": "/apis/qinglan.dev/v1alpha1",
    "inferenceservices": "/apis/serving.kserve.io/v1beta1",
    "revisions": "/apis/serving.knative.dev/v1",
    "deployments": "/apis/apps/v1",
    "replicasets": "/apis/apps/v1",
    "leases": "/apis/coordination.k8s.io/v1",
    "configmaps": "/api/v1",
}
NAMESPACE = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
CALL_SECONDS = (5.0, 30.0)
"""Time limits in seconds for the connection and for the answer."""

MAX_CONCURRENT_CALLS = 32
"""Highest number of concurrent calls of all threads, except watches and logs, which stay open."""

CONNECTIONS = 1024
PLAIN = "application/json"
MERGE_PATCH = "application/merge-patch+json"
READ = 1 << 16
# https://kubernetes.io/docs/tasks/run-application/access-api-from-pod/#directly-accessing-the-rest-api
NAMESPACE_FILE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")


class Api:
    """A client of one namespace of an API server."""

    def __init__(self, client: Any, namespace: str) -> None:
        self.client, self.namespace = client, namespace
        self.calls: Counter[str] = Counter()
        """Number of calls by method and resource, such as "GET pods/log"."""

        self._seconds_ahead: float | None = None
        self._lock, self._turns = threading.Lock(), threading.Semaphore(MAX_CONCURRENT_CALLS)

    @property
    def host(self) -> str:
        return str(self.client.configuration.host)

    def server_time(self) -> float:
        """Seconds since the epoch by the server's clock, or by this machine's clock before the first answer."""
        return steady_time() + (self._seconds_ahead or 0.0)

    def within(self, namespace: str) -> "Api":
        """Create a client of the same server for another namespace; "" keeps the current namespace."""
        if namespace and not NAMESPACE.fullmatch(namespace):
            raise ConfigError(
                f"{namespace!r} is no namespace's name: small letters, digits and - within, 63 at most. "
                "`kubectl get namespaces` lists them."
            )
        return Api(self.client, namespace or self.namespace)

    def get(self, resource: str, name: str) -> dict[str, Any] | None:
        """Return the object of this name; None if it does not exist."""
        try:
            return self._call("GET", resource, name)
        except ApiError as refusal:
            if refusal.missing:
                return None
            raise

    def all(self, resource: str, query: Mapping[str, str]) -> dict[str, Any]:
        return self._call("GET", resource, query=query)

    def create(self, resource: str, body: Mapping[str, Any]) -> dict[str, Any]:
        return self._call("POST", resource, body=body)

    def replace(self, resource: str, name: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Replace an object. Raises an ApiError with status 409 if its resourceVersion has changed.

        `name` may end with `/status` to replace only the status.
        """
        return self._call("PUT", resource, name, body=body)

    def merge(self, resource: str, name: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Apply a JSON merge patch, in which null removes a field and a list replaces the whole old list.

        Raises an ApiError with status 409 if the patch has a resourceVersion that is not the object's current one.
        """
        return self._call("PATCH", resource, name, body=body)

    def delete(self, resource: str, name: str, uid: str) -> None:
        """Delete the object with this uid after its dependents (foreground deletion), without waiting for the end.

        It is no error if the object is missing or has another uid.
        """
        # https://kubernetes.io/docs/concepts/architecture/garbage-collection/#foreground-deletion
        # The uid protects a new object of the same name from a delayed delete.
        body = {"propagationPolicy": "Foreground", "preconditions": {"uid": uid}}
        try:
            self._call("DELETE", resource, name, body=body)
        except ApiError as refusal:
            if not refusal.missing and refusal.status != 409:
                raise

    def _call(self, method: str, resource: str, name: str = "", query: Any = (), body: Any = None) -> dict[str, Any]:
        opened = self.opened(method, resource, name, query, body)
        with self._turns, opened as response, _api_errors(method, resource):
            return dict(orjson.loads(response.read()))

    @contextmanager
    def opened(
        self,
        method: str,
        resource: str,
        name: str = "",
        query: Mapping[str, str] | tuple[()] = (),
        body: Any = None,
        seconds: tuple[float, float] = CALL_SECONDS,
    ) -> Iterator[Any]:
        """Send a call and yield the response before its body is read. The response is closed after the block."""
        with self._lock:
            self.calls[f"{method} {'/'.join([resource, *name.split('/')[1:]])}"] += 1
        path = f"{PATHS[resource]}/namespaces/{self.namespace}/{resource}" + (f"/{name}" if name else "")
        with _api_errors(method, resource):
            response = self.client.call_api(
                path,
                method,
                query_params=list(dict(query).items()),
                body=body,
                auth_settings=["BearerToken"],
                header_params={"Accept": PLAIN, "Content-Type": MERGE_PATCH if method == "PATCH" else PLAIN},
                _preload_content=False,
                _return_http_data_only=True,
                _request_timeout=seconds,
            )
        if self._seconds_ahead is None:
            self._seconds_ahead = _seconds_ahead(response.headers.get("date", ""))
        try:
            yield response
        finally:
            response.close()  # after reading to the end, the connection is back in the pool already

    def batches(self, response: Any, resource: str) -> Iterator[list[bytes]]:
        """Yield the lines of a streamed answer, in batches as they arrive."""
        rest = b""
        with _api_errors("GET", resource):
            for chunk in response.stream(READ):
                *whole, rest = (rest + chunk).split(b"\n")
                yield whole
        if rest:
            yield [rest]


def _seconds_ahead(date: str) -> float | None:
    """Return by how many seconds an HTTP date is ahead of this machine's clock; None if the text is not a date."""
    try:
        return parsedate_to_datetime(date).timestamp() - steady_time()
    except ValueError:
        return None


@contextmanager
def _api_errors(method: str, resource: str) -> Iterator[None]:
    import urllib3
    from kubernetes.client import ApiException

    try:
        yield
    except ApiException as error:
        raise ApiError(method, resource, error.status or 0, error.body or error.reason or "") from error
    except (urllib3.exceptions.HTTPError, OSError) as error:
        raise ApiError(method, resource, 0, str(error)) from error


def connect(environment: Mapping[str, str] = os.environ) -> Api:
    """Connect with the pod's ServiceAccount if this process runs in a pod, else with KUBECONFIG."""
    from kubernetes import client

    settings, path = client.Configuration(), ""
    if not environment.get("KUBERNETES_SERVICE_HOST"):
        path = environment.get("KUBECONFIG") or str(Path("~/.kube/config").expanduser())
        if not any(Path(part).is_file() for part in path.split(os.pathsep)):
            raise ConfigError(
                f"No cluster is known here: this is no pod of one, and there is no file {path}. "
                "Set KUBECONFIG to a file that `kubectl` works with."
            )
    try:
        load_login(path, settings)
        namespace = _namespace(path)
    except (ConfigError, OSError) as error:
        raise ConfigError(
            f"No login to a cluster: {error} Set KUBECONFIG to a file that `kubectl` works with."
        ) from error
    settings.retries = False
    settings.connection_pool_maxsize = CONNECTIONS
    return Api(client.ApiClient(settings), environment.get("QINGLAN_NAMESPACE") or namespace)


def _namespace(path: str) -> str:
    from kubernetes import config

    if not path:
        return NAMESPACE_FILE.read_text().strip()
    _, current = config.list_kube_config_contexts(path)
    return str(current["context"].get("namespace") or "default")
