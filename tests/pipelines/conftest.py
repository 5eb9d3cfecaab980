"""A stand-in of KFP, and a small graph to send there."""

from collections.abc import Iterator

import pytest

from pipelines.submit.graph import Graph, read_graph
from tests.kfp.graphs import compile_graph
from tests.kfp.stand_in import StandIn, serving


@pytest.fixture(scope="session")
def small(tmp_path_factory: pytest.TempPathFactory) -> Graph:
    return read_graph(compile_graph(tmp_path_factory.mktemp("graph") / "small.yaml"))


@pytest.fixture
def server() -> Iterator[StandIn]:
    with serving(StandIn()) as one:
        yield one
