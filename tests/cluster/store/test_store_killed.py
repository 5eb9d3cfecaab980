"""A store whose server, client or bytes are taken away in the middle of a transfer."""

import itertools
import os
import secrets
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from threading import Event
from typing import NamedTuple

import pytest
from minio import Minio as Client

from qinglan.errors import DataError, OutageError
from qinglan.files.digests import digest
from qinglan.store import Store, open_store
from tests.cluster.servers import Minio, minio
from tests.cluster.store.s3_proxy import Proxy, Request, proxy
from tests.cluster.store.small_parts import PART, PIECE

PARTS = 10
AT = 8
"""The part that somebody is killed at."""
SMALL = 20

CLIENT = """
import sys
from pathlib import Path
from qinglan.store import open_store
from tests.cluster.store.small_parts import use_small_parts

use_small_parts()
store, (word, folder, digest) = open_store(sys.argv[1]), sys.argv[2:]
store.push(Path(folder), digest) if word == "push" else store.pull(digest, Path(folder))
"""


class Artifact(NamedTuple):
    """With a file of ten parts."""

    folder: Path
    digest: str


class World:
    """A store behind a proxy of one's own, in a bucket of one's own."""

    def __init__(self, server: Minio, artifact: Artifact, stack: ExitStack) -> None:
        self._stack, self.minio, self.bucket = stack, server, secrets.token_hex(4)
        self.artifact, self.digest = artifact
        self.proxy: Proxy = stack.enter_context(proxy(self.minio.endpoint))
        self.client().make_bucket(self.bucket)
        self.address = f"s3://{self.bucket}/tenants/demo"
        self.environment = {**self.minio.environment, "QINGLAN_S3_ENDPOINT": self.proxy.endpoint}

    @property
    def key(self) -> str:
        return f"tenants/demo/releases/{self.digest}/large"

    def client(self) -> Client:
        return Client(self.minio.endpoint.removeprefix("http://"), self.minio.key, self.minio.secret, secure=False)

    def store(self) -> Store:
        return open_store(self.address, self.environment)

    def uploads(self) -> int:
        """Number of incomplete uploads of the large file."""
        query = {"uploads": "", "prefix": self.key}
        response = self.client()._execute("GET", self.bucket, query_params=dict(query))
        return response.data.decode().count("<UploadId>")

    def kill_server(self) -> None:
        self.minio.process.kill()
        self.minio.process.wait()

    def start_again(self, folder: Path) -> None:
        self.minio = self._stack.enter_context(minio(folder, self.minio))
        self.proxy.point_at(self.minio.endpoint)

    def once(self, when: Callable[[Request], bool], do: Callable[[], object]) -> None:
        """Something happens at the first such request, before it goes on."""
        done = Event()

        def meddle(request: Request) -> None:
            if not done.is_set() and when(request):
                done.set()
                do()

        self.proxy.meddle = meddle

    def requests(self) -> list[Request]:
        """Return the requests since the last call."""
        requests, self.proxy.requests = self.proxy.requests, []
        return requests

    def run_until_killed(self, word: str, folder: Path, when: Callable[[Request], bool]) -> None:
        command = [sys.executable, "-c", CLIENT, self.address, word, str(folder), self.digest]
        environment = {**os.environ, **self.environment, "PYTHONPATH": os.pathsep.join(sys.path)}
        process = subprocess.Popen(command, env=environment)
        self.once(when, lambda: process.send_signal(signal.SIGKILL))
        assert process.wait(300) == -signal.SIGKILL
        self.proxy.meddle = lambda request: None


def write_artifact(folder: Path) -> str:
    folder.mkdir()
    with (folder / "large").open("wb") as file:
        for number in range(PARTS - 1):
            file.write(bytes([number]) * PART)
        file.write(b"the last part is a small one")
    for number in range(SMALL):
        (folder / f"small-{number:02}").write_text(f"{number}")
    return digest(folder)


def at_part(request: Request) -> bool:
    return request.part == AT


@pytest.fixture(scope="module")
def artifact(tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    folder = tmp_path_factory.mktemp("made") / "artifact"
    return Artifact(folder, write_artifact(folder))


@pytest.fixture
def own_copy(artifact: Artifact, tmp_path: Path) -> Artifact:
    """To be altered."""
    return artifact._replace(folder=shutil.copytree(artifact.folder, tmp_path / "artifact"))


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("download", "backend", "s3_backend", "store"):
        monkeypatch.setattr(f"qinglan.store.{module}.MIN_PART_SIZE", PART)
    monkeypatch.setattr("qinglan.store.download.PIECE_SIZE", PIECE)


@pytest.fixture
def world(s3: Minio, artifact: Artifact) -> Iterator[World]:
    with ExitStack() as stack:
        yield World(s3, artifact, stack)


@pytest.fixture
def disk(tmp_path: Path) -> Path:
    (tmp_path / "minio").mkdir()
    return tmp_path / "minio"


@pytest.fixture
def alone(disk: Path, artifact: Artifact) -> Iterator[World]:
    """With a MinIO of its own, whose disk is there and which may be killed."""
    with ExitStack() as stack:
        yield World(stack.enter_context(minio(disk)), artifact, stack)


def test_a_push_whose_server_was_killed_is_an_outage_and_can_be_repeated(
    alone: World, disk: Path, tmp_path: Path
) -> None:
    alone.once(at_part, alone.kill_server)
    with pytest.raises(OutageError):
        alone.store().push(alone.artifact, alone.digest)
    alone.start_again(disk)
    assert not alone.store().has(alone.digest)
    alone.requests()

    alone.store().push(alone.artifact, alone.digest)

    assert [
        request.path for request in alone.requests() if request.method == "PUT" and "/small-" in request.path
    ] == []
    assert digest(alone.store().pull(alone.digest, tmp_path / "back")) == alone.digest


def test_a_push_outlives_a_server_that_is_started_again_meanwhile(alone: World, disk: Path, tmp_path: Path) -> None:
    def restart() -> None:
        alone.kill_server()
        alone.start_again(disk)

    alone.once(at_part, restart)

    alone.store().push(alone.artifact, alone.digest)

    assert digest(alone.store().pull(alone.digest, tmp_path / "back")) == alone.digest


def test_a_push_that_was_killed_in_a_large_file_leaves_nothing_that_counts(world: World, tmp_path: Path) -> None:
    world.run_until_killed("push", world.artifact, at_part)
    assert not world.store().has(world.digest)

    world.store().push(world.artifact, world.digest)

    assert digest(world.store().pull(world.digest, tmp_path / "back")) == world.digest


def test_a_push_that_was_killed_among_small_files_sends_only_the_others(world: World) -> None:
    world.run_until_killed(
        "push", world.artifact, lambda request: request.method == "PUT" and request.path.endswith("/small-05")
    )
    world.requests()

    world.store().push(world.artifact, world.digest)

    again = {request.path for request in world.requests() if request.method == "PUT" and "/small-" in request.path}
    assert 0 < len(again) <= SMALL - 2


def test_several_push_the_same_at_once(world: World, tmp_path: Path) -> None:
    with ThreadPoolExecutor(3) as pool:
        uris = set(pool.map(lambda _: world.store().push(world.artifact, world.digest), range(3)))

    assert uris == {f"{world.address}/releases/{world.digest}"}
    assert world.uploads() == 0
    assert digest(world.store().pull(world.digest, tmp_path / "back")) == world.digest


def test_a_file_that_changes_while_its_parts_are_sent_is_not_kept(world: World, own_copy: Artifact) -> None:
    def change() -> None:
        with (own_copy.folder / "large").open("r+b") as file:
            file.seek((PARTS - 1) * PART)
            file.write(b"the last part is another one")

    world.once(lambda request: request.part == 1, change)

    with pytest.raises(DataError, match="large: changed while it was being pushed"):
        world.store().push(own_copy.folder, world.digest)

    assert world.uploads() == 0
    assert not world.store().has(world.digest)


def test_a_pull_that_was_killed_begins_again(world: World, tmp_path: Path) -> None:
    world.store().push(world.artifact, world.digest)
    begun = itertools.count(1)
    world.run_until_killed(
        "pull", tmp_path / "back", lambda request: request.path.endswith("/large") and next(begun) == AT
    )
    assert not (tmp_path / "back").exists()

    world.store().pull(world.digest, tmp_path / "back")

    assert digest(tmp_path / "back") == world.digest
    assert not list(tmp_path.glob(".back*"))


def test_a_large_object_that_was_changed_is_refused_and_nothing_is_left(
    world: World, own_copy: Artifact, tmp_path: Path
) -> None:
    world.store().push(own_copy.folder, world.digest)
    with (own_copy.folder / "large").open("r+b") as file:
        file.write(b"!")
    headers = world.client().stat_object(world.bucket, world.key).metadata or {}
    metadata = {"x-amz-meta-sha256": str(headers["x-amz-meta-sha256"])}
    world.client().fput_object(world.bucket, world.key, str(own_copy.folder / "large"), metadata=dict(metadata))

    with pytest.raises(DataError, match="large: not the bytes that were pushed"):
        world.store().pull(world.digest, tmp_path / "back")

    assert [path.name for path in tmp_path.iterdir() if "back" in path.name] == []
