"""One server for all of these tests, in a folder of its own."""

from collections.abc import Iterator

import pytest

from tests.cluster.servers import Minio, minio


@pytest.fixture(scope="session")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Minio]:
    with minio(tmp_path_factory.mktemp("minio")) as server:
        yield server
