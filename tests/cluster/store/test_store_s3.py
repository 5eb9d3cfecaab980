"""A store in a real S3: MinIO's."""

import io
import itertools
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from minio import Minio as Client

from qinglan.errors import ConfigError, OutageError
from qinglan.files.digests import digest
from qinglan.store import open_store
from qinglan.store.backend import MIN_PART_SIZE
from tests.cluster.servers import Minio, minio
from tests.cluster.store import small_parts
from tests.servers.store_contract import *  # noqa: F403
from tests.servers.store_contract import MISSING, StoreAccess, release

BUCKETS = itertools.count()
PREFIX = "tenants/demo"


@pytest.fixture
def client(s3: Minio) -> Client:
    return Client(s3.endpoint.removeprefix("http://"), s3.key, s3.secret, secure=False)


@pytest.fixture
def bucket(client: Client) -> str:
    name = f"bucket-{next(BUCKETS)}"
    client.make_bucket(name)
    return name


@pytest.fixture
def access(s3: Minio, client: Client, bucket: str, monkeypatch: pytest.MonkeyPatch) -> StoreAccess:
    for name, value in s3.environment.items():
        monkeypatch.setenv(name, value)

    def overwrite(key: str, data: bytes) -> None:
        client.put_object(bucket, f"{PREFIX}/{key}", io.BytesIO(data), len(data))

    return StoreAccess(
        open_store(f"s3://{bucket}/{PREFIX}"), overwrite, lambda key: client.remove_object(bucket, f"{PREFIX}/{key}")
    )


def test_a_large_file_goes_in_parts_and_carries_its_digest(
    access: StoreAccess, client: Client, bucket: str, tmp_path: Path
) -> None:
    folder, _ = release(tmp_path / "release")
    (folder / "large").write_bytes(bytes(range(256)) * (2 * MIN_PART_SIZE // 256) + b"and more")
    sha = digest(folder)

    access.store.push(folder, sha)

    held = client.stat_object(bucket, f"{PREFIX}/releases/{sha}/large")
    assert (held.etag or "").endswith("-3")
    assert (held.metadata or {})["x-amz-meta-sha256"] == digest(folder / "large")
    assert digest(access.store.pull(sha, tmp_path / "back")) == sha


MEASURED = """
import sys
from pathlib import Path
from benchmarks.memory import largest_memory
from qinglan.store import open_store
from tests.cluster.store.small_parts import use_small_parts

use_small_parts()
address, folder, digest, back = sys.argv[1:]
store = open_store(address)
store.has(digest)
before = largest_memory()
store.push(Path(folder), digest)
store.pull(digest, Path(back))
print("MB:", largest_memory() - before)
"""


def test_a_file_of_any_size_takes_the_memory_of_a_few_parts(access: StoreAccess, tmp_path: Path) -> None:
    (tmp_path / "release").mkdir()
    with (tmp_path / "release" / "large").open("wb") as file:
        file.truncate(24 * small_parts.PART + 1)
    sha = digest(tmp_path / "release")
    command = [sys.executable, "-c", MEASURED, access.store.address, str(tmp_path / "release"), sha]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}

    message = subprocess.check_output([*command, str(tmp_path / "back")], env=environment, text=True)

    assert digest(tmp_path / "back") == sha
    assert int(message.split("MB:")[1]) < (10 * small_parts.PART) >> 20


def test_two_prefixes_of_a_bucket_know_nothing_of_each_other(
    access: StoreAccess, bucket: str, tmp_path: Path
) -> None:
    folder, sha = release(tmp_path / "release")
    access.store.push(folder, sha)

    for address in (f"s3://{bucket}", f"s3://{bucket}/tenants"):
        assert not open_store(address).has(sha)
        assert list(open_store(address).digests()) == []


@pytest.mark.parametrize("name", ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"])
def test_wrong_keys_are_a_matter_of_settings(s3: Minio, bucket: str, tmp_path: Path, name: str) -> None:
    store = open_store(f"s3://{bucket}", {**s3.environment, name: "mistaken"})

    for ask in (lambda: store.has(MISSING), lambda: list(store.digests()), lambda: store.backend.create("a", b"a")):
        with pytest.raises(ConfigError, match="Check AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"):
            ask()


def test_a_bucket_that_is_not_there_is_named(s3: Minio, tmp_path: Path) -> None:
    store = open_store("s3://nowhere", s3.environment)

    for ask in (lambda: store.has(MISSING), lambda: store.push(*release(tmp_path / "release"))):
        with pytest.raises(ConfigError, match="no bucket nowhere"):
            ask()


def test_a_server_that_stopped_is_an_outage_and_soon(s3: Minio, tmp_path: Path) -> None:
    (tmp_path / "own").mkdir()
    with minio(tmp_path / "own") as other:
        client = Client(other.endpoint.removeprefix("http://"), other.key, other.secret, secure=False)
        client.make_bucket("bucket")
        store = open_store("s3://bucket", other.environment)
        folder, sha = release(tmp_path / "release")
        store.push(folder, sha)

    began = time.monotonic()
    for ask in (
        lambda: store.has(sha), lambda: store.push(folder, sha), lambda: store.pull(sha, tmp_path / "back"),
        lambda: list(store.names()), lambda: store.backend.create("a", b"a"),
    ):  # fmt: skip
        with pytest.raises(OutageError, match="Check QINGLAN_S3_ENDPOINT and that it runs"):
            ask()
    assert time.monotonic() - began < 120
    assert not (tmp_path / "back").exists()
