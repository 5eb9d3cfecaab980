"""A stand-in of the shape that the cluster's own fixtures have; it goes when they come."""

import os
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.cluster import binaries
from tests.cluster.servers import Minio, minio

BUILT = {"kubectl": os.environ.get("KUBECTL", "kubectl"), "promtool": os.environ.get("PROMTOOL", "promtool")}
build = binaries.binary
binaries.binary = lambda name: Path(BUILT[name]) if name in BUILT else build(name)


class Cluster(NamedTuple):
    kubeconfig: Path
    simulated: bool = True

    def admin(self) -> Any:
        from kubernetes import config  # type: ignore[import-untyped]

        return config.new_client_from_config(str(self.kubeconfig))

    def account(self, namespace: str, name: str, seconds: int = 3600) -> Any:
        from kubernetes import client

        admin = self.admin()
        spec = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {"expirationSeconds": seconds},
        }
        made = client.CoreV1Api(admin).create_namespaced_service_account_token(name, namespace, spec)
        own = client.Configuration()
        own.host, own.ssl_ca_cert = admin.configuration.host, admin.configuration.ssl_ca_cert
        own.api_key = {"authorization": f"Bearer {made.status.token}"}
        return client.ApiClient(own)


@pytest.fixture(scope="session")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Minio]:
    with minio(tmp_path_factory.mktemp("minio")) as server:
        yield server


@pytest.fixture(scope="session")
def cluster() -> Cluster:
    return Cluster(Path(os.environ["QINGLAN_TEST_CLUSTER"]))


@pytest.fixture
def namespace(cluster: Cluster) -> Iterator[str]:
    from kubernetes import client

    name = f"h7-manifests-{secrets.token_hex(4)}"
    api = client.CoreV1Api(cluster.admin())
    api.create_namespace({"metadata": {"name": name}})
    yield name
    api.delete_namespace(name)


@pytest.fixture
def simulated(cluster: Cluster) -> Cluster:
    return cluster
