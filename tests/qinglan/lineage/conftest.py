"""One ML Metadata server for all tests here; each writes runs, URIs and digests of its own."""

from collections.abc import Iterator

import pytest

from tests.mlmd import mlmd_server


@pytest.fixture(scope="session")
def mlmd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with mlmd_server(tmp_path_factory.mktemp("mlmd")) as address:
        yield address
