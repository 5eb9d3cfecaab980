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
from qinglan.store.s3_connection import S3Connection, S3Settings
from tests.cluster.servers import Minio, minio
from tests.cluster.store.s3_proxy import Proxy, Request, proxy
from tests.cluster.store.small_parts import PART, PIECE

PARTS = 10
AT = 8
"""The part that somebody is killed at: with four at once, the first four have surely arrived by then."""
SURE = AT - 4
PIECES = (PARTS - 1) * PART // PIECE + 1
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

    def connection(self) -> S3Connection:
        return S3Connection(S3Settings.of(self.address, self.minio.environment))

    def uploads(self) -> list[str]:
        result = self.connection().ask("GET", "", {"uploads": "", "prefix": self.key}).data.decode()
        return [piece.partition("</UploadId>")[0] for piece in result.split("<UploadId>")[1:]]

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
        """What came by since this was asked last."""
        seen, self.proxy.requests = self.proxy.requests, []
        return seen

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


def parts(seen: list[Request]) -> list[int]:
    return sorted(request.part for request in seen if request.part)


def fetched(seen: list[Request]) -> int:
    """How many pieces of the large file were asked for."""
    return len([request for request in seen if request.method == "GET" and request.path.endswith("/large")])


def at_part(request: Request) -> bool:
    return request.part == AT


@pytest.fixture(scope="module")
def artifact(tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    folder = tmp_path_factory.mktemp("made") / "artifact"
    return Artifact(folder, write_artifact(folder))


@pytest.fixture
def own(artifact: Artifact, tmp_path: Path) -> Artifact:
    """To be altered."""
    return artifact._replace(folder=shutil.copytree(artifact.folder, tmp_path / "artifact"))


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("download", "backend", "manifest"):
        monkeypatch.setattr(f"qinglan.store.{module}.MIN_PART_SIZE", PART)
    monkeypatch.setattr("qinglan.store.download.PIECE_SIZE", PIECE)


@pytest.fixture
def few_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("multipart", "s3_backend"):
        monkeypatch.setattr(f"qinglan.store.{module}.PART_RETRIES", 1)


@pytest.fixture
def world(s3: Minio, artifact: Artifact, few_retries: None) -> Iterator[World]:
    with ExitStack() as stack:
        yield World(s3, artifact, stack)


@pytest.fixture
def disk(tmp_path: Path) -> Path:
    (tmp_path / "minio").mkdir()
    return tmp_path / "minio"


@pytest.fixture
def alone(disk: Path, artifact: Artifact, few_retries: None) -> Iterator[World]:
    """With a MinIO of its own, whose disk is there and which may be killed."""
    with ExitStack() as stack:
        yield World(stack.enter_context(minio(disk)), artifact, stack)


def test_a_push_goes_on_after_its_server_was_killed(alone: World, disk: Path, tmp_path: Path) -> None:
    alone.once(at_part, alone.kill_server)
    with pytest.raises(OutageError, match="a push or a pull goes on where it was"):
        alone.store().push(alone.artifact, alone.digest)
    alone.start_again(disk)
    assert not alone.store().has(alone.digest)
    alone.requests()

    alone.store().push(alone.artifact, alone.digest)

    observed = alone.requests()
    assert not set(parts(observed)) & set(range(1, SURE + 1))
    assert sum(request.size for request in observed if request.part) < (PARTS - SURE) * PART
    assert [request.path for request in observed if request.method == "PUT" and "/small-" in request.path] == []
    assert alone.uploads() == []
    assert digest(alone.store().pull(alone.digest, tmp_path / "back")) == alone.digest


def test_a_push_outlives_a_server_that_is_started_again_meanwhile(
    alone: World, disk: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("qinglan.store.multipart.PART_RETRIES", 8)

    def restart() -> None:
        alone.kill_server()
        alone.start_again(disk)

    alone.once(at_part, restart)

    alone.store().push(alone.artifact, alone.digest)

    assert digest(alone.store().pull(alone.digest, tmp_path / "back")) == alone.digest


def test_a_push_that_was_killed_goes_on(world: World, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    world.run_until_killed("push", world.artifact, at_part)
    assert not world.store().has(world.digest)
    assert len(world.uploads()) == 1
    world.requests()

    world.store().push(world.artifact, world.digest)

    assert not set(parts(world.requests())) & set(range(1, SURE + 1))
    assert "MB were there already" in capsys.readouterr().out
    assert world.uploads() == []
    assert digest(world.store().pull(world.digest, tmp_path / "back")) == world.digest


def test_a_push_that_was_killed_among_small_files_sends_only_the_others(world: World) -> None:
    world.run_until_killed(
        "push", world.artifact, lambda request: request.method == "PUT" and request.path.endswith("/small-05")
    )
    world.requests()

    world.store().push(world.artifact, world.digest)

    again = {request.path for request in world.requests() if request.method == "PUT" and "/small-" in request.path}
    assert 0 < len(again) <= SMALL - 2


def test_a_part_that_was_changed_meanwhile_is_sent_again(world: World, tmp_path: Path) -> None:
    world.run_until_killed("push", world.artifact, at_part)
    query = {"uploadId": world.uploads()[0], "partNumber": "2"}
    world.connection().ask("PUT", world.key, query, b"!" * PART)
    world.requests()

    world.store().push(world.artifact, world.digest)

    assert parts(world.requests())[0] == 2
    assert digest(world.store().pull(world.digest, tmp_path / "back")) == world.digest


@pytest.mark.parametrize(("said", "times"), [({}, 2), ({"x-amz-meta-sha256": "of the large file"}, 1)])
def test_another_cut_of_the_file_is_not_mixed_with_ours(
    world: World, tmp_path: Path, said: dict[str, str], times: int
) -> None:
    headers = dict.fromkeys(said, digest(world.artifact / "large"))
    begun = world.connection().ask("POST", world.key, {"uploads": ""}, headers=headers).data.decode()
    id = begun.partition("<UploadId>")[2].partition("</UploadId>")[0]
    for number in (1, 2, 30):
        world.connection().ask("PUT", world.key, {"uploadId": id, "partNumber": str(number)}, bytes(5 << 20))

    world.store().push(world.artifact, world.digest)

    assert parts(world.requests()) == sorted([*range(1, PARTS + 1)] * times)
    assert digest(world.store().pull(world.digest, tmp_path / "back")) == world.digest


def test_a_late_pusher_finds_the_upload_finished(world: World, tmp_path: Path) -> None:
    """One pusher is held at a part until another, who joined its upload, is done."""
    with ThreadPoolExecutor(1) as pool:
        done = Event()
        world.once(at_part, lambda: done.wait(300))
        first = pool.submit(world.store().push, world.artifact, world.digest)
        while not any(at_part(request) for request in list(world.proxy.requests)):
            assert not first.done()
        second = world.store().push(world.artifact, world.digest)
        done.set()

        assert first.result() == second
    assert world.uploads() == []
    assert digest(world.store().pull(world.digest, tmp_path / "back")) == world.digest


def test_several_push_the_same_at_once(world: World, tmp_path: Path) -> None:
    with ThreadPoolExecutor(3) as pool:
        uris = set(pool.map(lambda _: world.store().push(world.artifact, world.digest), range(3)))

    assert uris == {f"{world.address}/releases/{world.digest}"}
    assert world.uploads() == []
    assert digest(world.store().pull(world.digest, tmp_path / "back")) == world.digest


def test_a_file_that_changes_while_its_parts_are_sent_is_not_kept(world: World, own: Artifact) -> None:
    def change() -> None:
        with (own.folder / "large").open("r+b") as file:
            file.seek((PARTS - 1) * PART)
            file.write(b"the last part is another one")

    world.once(lambda request: request.part == 1, change)

    with pytest.raises(DataError, match="large: changed while it was being pushed"):
        world.store().push(own.folder, world.digest)

    assert world.uploads() == []
    assert not world.store().has(world.digest)


def test_a_pull_that_was_killed_goes_on(world: World, tmp_path: Path) -> None:
    world.store().push(world.artifact, world.digest)
    world.requests()
    begun = itertools.count(1)
    world.run_until_killed(
        "pull", tmp_path / "back", lambda request: request.path.endswith("/large") and next(begun) == AT
    )
    assert not (tmp_path / "back").exists()
    assert fetched(world.requests()) >= AT

    world.store().pull(world.digest, tmp_path / "back")

    assert 0 < fetched(world.requests()) <= PIECES - SURE
    assert digest(tmp_path / "back") == world.digest
    assert not list(tmp_path.glob(".back*"))


def test_a_pull_goes_on_after_its_server_was_killed(alone: World, disk: Path, tmp_path: Path) -> None:
    alone.store().push(alone.artifact, alone.digest)
    begun = itertools.count(1)
    alone.once(lambda request: request.path.endswith("/large") and next(begun) == AT, alone.kill_server)
    with pytest.raises(OutageError, match="a push or a pull goes on where it was"):
        alone.store().pull(alone.digest, tmp_path / "back")
    alone.start_again(disk)
    alone.requests()

    alone.store().pull(alone.digest, tmp_path / "back")

    assert 0 < fetched(alone.requests()) <= PIECES - SURE
    assert digest(tmp_path / "back") == alone.digest


def test_a_large_object_that_was_changed_is_refused_and_nothing_is_left(
    world: World, own: Artifact, tmp_path: Path
) -> None:
    world.store().push(own.folder, world.digest)
    with (own.folder / "large").open("r+b") as file:
        file.write(b"!")
    said = world.client().stat_object(world.bucket, world.key).metadata or {}
    kept = {"x-amz-meta-sha256": str(said["x-amz-meta-sha256"])}
    world.client().fput_object(world.bucket, world.key, str(own.folder / "large"), metadata=dict(kept))

    with pytest.raises(DataError, match="large: not the bytes that were pushed"):
        world.store().pull(world.digest, tmp_path / "back")

    assert [path.name for path in tmp_path.iterdir() if "back" in path.name] == []


def test_bytes_that_changed_on_the_servers_disk_never_come_back(alone: World, disk: Path, tmp_path: Path) -> None:
    alone.store().push(alone.artifact, alone.digest)
    [third] = (disk / "objects").rglob("large/*/part.3")
    with third.open("r+b") as file:
        file.seek(PART // 2)
        file.write(b"!")

    with pytest.raises((DataError, OutageError)):
        alone.store().pull(alone.digest, tmp_path / "back")

    assert not (tmp_path / "back").exists()
