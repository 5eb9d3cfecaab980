"""The rewriter's server in a process of its own, on loopback."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.models.tiny_rewriter import taught_model
from tests.serving.model_servers import Serve, Served, server_of


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return taught_model(tmp_path_factory.mktemp("taught") / "model")


@pytest.fixture(scope="session")
def serve(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Serve:
    return server_of("serving.rewriter", folder, tmp_path_factory.mktemp("rewriter-logs"))


@pytest.fixture(scope="module")
def served(serve: Serve) -> Iterator[Served]:
    with serve() as running:
        yield running
