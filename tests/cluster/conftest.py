"""One cluster and one store for all of these tests, each in a folder of its own."""

from collections.abc import Iterator

import pytest

from tests.cluster.plane.cluster import VARIABLE, Cluster, chosen, fresh_namespace
from tests.cluster.prometheus import Server, prometheus
from tests.cluster.servers import Minio, minio


@pytest.fixture(scope="session")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Minio]:
    with minio(tmp_path_factory.mktemp("minio")) as server:
        yield server


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Our own, with simulated nodes; or the one whose kubeconfig QINGLAN_TEST_CLUSTER names."""
    with chosen(tmp_path_factory.mktemp("cluster")) as found:
        yield found


@pytest.fixture
def namespace(cluster: Cluster) -> Iterator[str]:
    with fresh_namespace(cluster) as name:
        yield name


@pytest.fixture
def simulated(cluster: Cluster) -> Cluster:
    """For tests that say what becomes of a pod: a real kubelet would not listen."""
    if not cluster.simulated:
        pytest.skip(f"{VARIABLE} names a cluster whose pods really run; this test tells pods how to end")
    return cluster


@pytest.fixture(scope="session")
def scraping(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with prometheus(tmp_path_factory.mktemp("prometheus")) as server:
        yield server
