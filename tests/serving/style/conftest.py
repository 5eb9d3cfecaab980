"""The style service in a process of its own, over a tiny model."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.models.tiny_style import tiny_style_model
from tests.serving.model_servers import Serve, Served, server_of


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_style_model(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def serve(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Serve:
    return server_of("serving.style", folder, tmp_path_factory.mktemp("style-logs"))


@pytest.fixture(scope="module")
def served(serve: Serve) -> Iterator[Served]:
    with serve() as running:
        yield running
