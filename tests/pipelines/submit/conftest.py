"""A stand-in of KFP, a small graph to send there, and nobody else's settings."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from pipelines.submit.graph import Graph, read_graph
from pipelines.submit.service import Access, Kfp
from pipelines.submit.starting import Wanted, submit
from tests.kfp.graphs import compile_graph
from tests.kfp.stand_in import StandIn, serving

GIVEN = {"questions": "s3://bucket/questions.xlsx"}


@pytest.fixture(autouse=True)
def nobody_elses_cluster(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    for name in ("KFP_ENDPOINT", "KFP_TOKEN", "KFP_TOKEN_FILE", "KFP_NAMESPACE", "KFP_UI_ENDPOINT", "SSL_CERT_FILE"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Graph:
    return read_graph(compile_graph(tmp_path_factory.mktemp("graph") / "small.yaml"))


@pytest.fixture
def server() -> Iterator[StandIn]:
    with serving(StandIn()) as one:
        yield one


def started(server: StandIn, graph: Graph) -> tuple[Kfp, str]:
    kfp = Kfp(Access(server.url))
    wanted = Wanted("qinglan-small", GIVEN, "acme", checks=False)
    return kfp, submit(kfp, graph, wanted, lambda line: None).run_id
