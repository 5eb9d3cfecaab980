"""A cluster as tests use it: its address, its accounts, and whether its pods obey our annotations."""

import os
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from qinglan.errors import ConfigError, OutageError
from tests.cluster.plane.plane import restart, running
from tests.cluster.plane.processes import Folder

VARIABLE = "QINGLAN_TEST_CLUSTER"
LABEL = "qinglan.dev/test"
SESSION = secrets.token_hex(4)
USABLE_SECONDS, GONE_SECONDS = 240.0, 300.0


class Cluster(NamedTuple):
    kubeconfig: Path
    simulated: bool
    """Pods are simulated: the annotations sim/* say what becomes of them, and nothing runs in them."""
    folder: Folder | None = None
    """Ours; none where somebody else's is used."""

    def admin(self) -> Any:
        """A kubernetes.client.ApiClient with the rights of the kubeconfig."""
        from kubernetes import config

        return config.new_client_from_config(str(self.kubeconfig))

    def account(self, namespace: str, name: str, seconds: int = 3600) -> Any:
        """The same as a service account, with a token that the API server makes for it."""
        from kubernetes import client

        admin = self.admin()
        spec = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {"expirationSeconds": seconds},
        }
        namespaced_service_account_token = client.CoreV1Api(admin).create_namespaced_service_account_token(
            name, namespace, spec
        )
        configuration = client.Configuration()
        configuration.host, configuration.ssl_ca_cert = admin.configuration.host, admin.configuration.ssl_ca_cert
        configuration.verify_ssl = admin.configuration.verify_ssl
        configuration.api_key = {"authorization": f"Bearer {namespaced_service_account_token.status.token}"}
        return client.ApiClient(configuration)

    def restart(self, part: str) -> None:
        """End a part of our own cluster, e.g. kube-apiserver, and start it again on its port."""
        if self.folder is None:
            raise ConfigError(f"{VARIABLE} names somebody's cluster: {part} is not ours to end.")
        restart(self.folder, part)


@contextmanager
def chosen(folder: Path) -> Iterator[Cluster]:
    """The cluster that the environment names; without one, a new one of our own in `folder`."""
    named = os.environ.get(VARIABLE)
    if not named:
        with running(folder) as cluster_folder:
            yield Cluster(cluster_folder.kubeconfig, simulated=True, folder=cluster_folder)
        return
    cluster = foreign(Path(named))
    try:
        yield cluster
    finally:
        for name in session_namespaces(cluster):
            until_gone(cluster, name)


def foreign(kubeconfig: Path) -> Cluster:
    """Somebody's cluster: simulated like ours if KWOK plays its nodes."""
    from kubernetes import client
    from kubernetes.config import ConfigException
    from urllib3.exceptions import HTTPError

    path = kubeconfig.expanduser().resolve()
    unknown = Cluster(path, simulated=False)
    try:
        nodes = client.CoreV1Api(unknown.admin()).list_node(_request_timeout=30).items
    except ConfigException as error:
        raise ConfigError(f"{VARIABLE}={kubeconfig}: this is no kubeconfig that can be used ({error}).") from error
    except (HTTPError, client.ApiException) as error:
        raise OutageError(f"{VARIABLE}={kubeconfig}: the cluster does not answer as it should: {error}") from error
    annotations = [node.metadata.annotations or {} for node in nodes]
    return unknown._replace(simulated=any("kwok.x-k8s.io/node" in each for each in annotations))


@contextmanager
def fresh_namespace(cluster: Cluster) -> Iterator[str]:
    """A namespace with a label of ours and a name that nobody has.

    At the end it is going, with all that is in it. Kubernetes waits 5 s before it looks at one: we do not wait here.
    """
    from kubernetes import client

    api = client.CoreV1Api(cluster.admin())
    name = f"qinglan-test-{secrets.token_hex(4)}"
    api.create_namespace({"metadata": {"name": name, "labels": {LABEL: SESSION}}})
    try:
        until_usable(api, name)
        yield name
    finally:
        api.delete_namespace(name)


def until_usable(api: Any, namespace: str) -> None:
    """Kubernetes makes the account that pods run as a moment later."""
    deadline = time.monotonic() + USABLE_SECONDS
    while not any(item.metadata.name == "default" for item in api.list_namespaced_service_account(namespace).items):
        if time.monotonic() > deadline:
            raise OutageError(f"{namespace} has no account `default` after {USABLE_SECONDS:.0f} s.")
        time.sleep(0.05)


def session_namespaces(cluster: Cluster) -> list[str]:
    """The namespaces of this session that are still there."""
    from kubernetes import client

    result = client.CoreV1Api(cluster.admin()).list_namespace(label_selector=f"{LABEL}={SESSION}").items
    return [it.metadata.name for it in result]


def until_gone(cluster: Cluster, namespace: str) -> None:
    deadline = time.monotonic() + GONE_SECONDS
    while namespace in session_namespaces(cluster):
        if time.monotonic() > deadline:
            raise OutageError(
                f"namespace {namespace} is still there after {GONE_SECONDS:.0f} s: something in it has a finalizer "
                f"that nobody removes. Look at it with: kubectl get namespace {namespace} -o yaml"
            )
        time.sleep(0.2)
