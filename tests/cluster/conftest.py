"""One cluster and one store for all of these tests, each in a folder of its own."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.cluster.jobs.worker_groups import Groups, place
from tests.cluster.kubectl import Kubectl
from tests.cluster.overlays import Overlays
from tests.cluster.plane.cluster import VARIABLE, Cluster, chosen, fresh_namespace
from tests.cluster.rollout.prometheus import Server, prometheus
from tests.cluster.rollout.rollout_world import House, World, house_of
from tests.cluster.search.opensearch import Node, node
from tests.cluster.servers import Minio, minio
from tests.cluster.waiting import until
from tests.manifests.manifest_objects import MANIFESTS, objects

CRD = objects(MANIFESTS / "platform/modelrollout.yaml")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: place(item.nodeid))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Groups:
    return Groups(config, log)


@pytest.fixture(scope="session")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Minio]:
    with minio(tmp_path_factory.mktemp("minio")) as server:
        yield server


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Our own, with simulated nodes; or the one whose kubeconfig QINGLAN_TEST_CLUSTER names."""
    with chosen(tmp_path_factory.mktemp("cluster")) as result:
        yield result


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
def overlays(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Overlays]:
    if not cluster.simulated:
        pytest.skip("makes cluster-wide policies: on a cluster of our own only")
    overlays = Overlays(Kubectl(cluster.kubeconfig), tmp_path_factory.mktemp("overlays"))
    yield overlays
    if cluster.folder is None:
        overlays.clear()


@pytest.fixture(scope="session")
def scraping(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with prometheus(tmp_path_factory.mktemp("prometheus")) as server:
        yield server


@pytest.fixture(scope="session")
def search(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    """A node that some tests kill and start again; each has tenants of its own in it."""
    quickly_compiled = ["-XX:TieredStopAtLevel=1"]  # or it would compile for most of its short life
    with node(tmp_path_factory.mktemp("opensearch"), options=quickly_compiled) as server:
        yield server


@pytest.fixture(scope="module")
def api(cluster: Cluster) -> Iterator[Kubectl]:
    """An API server that knows ModelRollouts; on somebody's cluster they stay known if they were."""
    kubectl = Kubectl(cluster.kubeconfig)
    existing = kubectl("get", "crd", "modelrollouts.qinglan.dev").code == 0
    assert kubectl.apply(CRD).code == 0
    until(lambda: "modelrollouts" in kubectl("api-resources", "--api-group=qinglan.dev").text, "the CRD is served")
    yield kubectl
    if not existing:
        kubectl.must("delete", "crd", "modelrollouts.qinglan.dev")


@pytest.fixture(scope="module")
def rollouts(
    cluster: Cluster, overlays: Overlays, s3: Minio, scraping: Server, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[House]:
    """Namespace of the rollout's controller."""
    overlays.use("single-tenant")
    with house_of(cluster, s3, scraping, tmp_path_factory.mktemp("rollout")) as house:
        yield house


@pytest.fixture
def world(rollouts: House) -> Iterator[World]:
    world = World(rollouts)
    try:
        yield world
    finally:
        world.close()
