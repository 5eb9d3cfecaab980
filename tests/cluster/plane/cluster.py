"""A cluster as tests use it: its address, its accounts, and whether its pods obey our annotations."""

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from qinglan.errors import ConfigError, OutageError
from tests.cluster.plane.plane import restart, running
from tests.cluster.plane.processes import Folder
from tests.cluster.waiting import until

VARIABLE = "QINGLAN_TEST_CLUSTER"
LABEL = "qinglan.dev/test"
SESSION = secrets.token_hex(4)


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

    def account(self, namespace: str, name: str) -> Any:
        """The same as a service account, with a token that the API server makes for it."""
        from kubernetes import client

        admin = self.admin()
        spec: Any = {"spec": {"expirationSeconds": 3600}}
        token = client.CoreV1Api(admin).create_namespaced_service_account_token(name, namespace, spec).status.token
        configuration = client.Configuration()
        configuration.host, configuration.ssl_ca_cert = admin.configuration.host, admin.configuration.ssl_ca_cert
        configuration.verify_ssl = admin.configuration.verify_ssl
        configuration.api_key = {"authorization": f"Bearer {token}"}
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
        until(lambda: not session_namespaces(cluster), "the namespaces of the tests are gone")


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
        # Kubernetes makes the account that pods run as a moment later.
        accounts = api.list_namespaced_service_account
        until(lambda: any(it.metadata.name == "default" for it in accounts(name).items), "the account `default`")
        yield name
    finally:
        api.delete_namespace(name)


def session_namespaces(cluster: Cluster) -> list[str]:
    """The namespaces of this session that are still there."""
    from kubernetes import client

    result = client.CoreV1Api(cluster.admin()).list_namespace(label_selector=f"{LABEL}={SESSION}").items
    return [it.metadata.name for it in result]
