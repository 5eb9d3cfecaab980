"""Pipes, devices and sockets where files belong: nothing that reads a stranger's folder waits for them."""

import os
import shutil
import socket
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from itertools import product
from pathlib import Path

import orjson
import pytest

from qinglan.errors import QinglanError
from qinglan.files.digests import digest
from qinglan.lineage.auditing.audit import audit, audit_error
from qinglan.lineage.auditing.deploy_gate import may_deploy
from qinglan.lineage.auditing.descendants import which_models
from qinglan.models.model_files import refuse_disallowed_files
from qinglan.rewriter.card import read_card
from qinglan.store import Store, open_store
from tests.qinglan.lineage.tampering import Scene
from tests.releases.lineage_world import make_keys, write_run
from tests.releases.registered_release import NAME

SECONDS = 60


def pipe(path: Path) -> None:
    os.mkfifo(path)


def unix_socket(path: Path) -> None:
    here = Path.cwd()
    os.chdir(path.parent)  # a socket's path has 108 bytes at most
    try:
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(path.name)
    finally:
        os.chdir(here)


def linked_to(target: str) -> Callable[[Path], None]:
    return lambda path: path.symlink_to(target)


def linked_pipe(path: Path) -> None:
    os.mkfifo(path.with_name(f"{path.name}.pipe"))
    path.symlink_to(f"{path.name}.pipe")


SPECIAL: dict[str, Callable[[Path], None]] = {
    "a pipe": pipe, "a socket": unix_socket, "a link to a pipe": linked_pipe, "a terminal": linked_to("/dev/tty"),
    "an endless device": linked_to("/dev/zero"), "a process's memory": linked_to("/proc/self/mem"),
    "a folder": Path.mkdir, "a link to itself": lambda path: path.symlink_to(path.name),
}  # fmt: skip


pytestmark = pytest.mark.timeout(SECONDS, func_only=True)
"""A reader that waits for a pipe is stopped, and its test fails."""


def put(path: Path, special: str) -> None:
    path.chmod(0o644)
    path.unlink()
    SPECIAL[special](path)


RELEASE_FILES = (
    "provenance.dsse.json", "evaluation.json", "report.html", "mlbom.cdx.json", "model.sig", "model/config.json",
    "model/model.safetensors", "model/rewriter.json", "model/chat_template.jinja", "lineage/gate-",
    "lineage/verdict-",
)  # fmt: skip


FAST = ("a pipe", "an endless device")
"""The kinds that the fast tests try in a run and in a store. Each place of a release they try by a pipe, and one by
all kinds."""

KINDS = [pytest.param(special, marks=() if special in FAST else pytest.mark.slow) for special in SPECIAL]
PAIRS = [
    pytest.param(name, special, marks=() if special == "a pipe" or name == RELEASE_FILES[0] else pytest.mark.slow)
    for name, special in product(RELEASE_FILES, SPECIAL)
]


@pytest.mark.parametrize(("name", "special"), PAIRS)
def test_a_release_with_something_else_than_a_file_is_refused_at_once(scene: Scene, name: str, special: str) -> None:
    put(scene.path(name), special)

    with pytest.raises(QinglanError):
        result = audit(str(scene.folder), scene.policy)
        assert result.verdict == "altered"
        raise audit_error(result) or AssertionError("it is intact")
    with suppress(QinglanError):
        decision = may_deploy(scene.folder, scene.policy, NAME)
        assert not decision.allowed and decision.grave
    which_models("a" * 64, [scene.folder], scene.policy)
    if name.startswith("model/"):
        with pytest.raises(QinglanError):
            refuse_disallowed_files(scene.folder / "model")
    if name == "model/rewriter.json":
        with pytest.raises(QinglanError):
            read_card(scene.folder / "model")


@pytest.mark.slow
@pytest.mark.parametrize("special", KINDS)
def test_a_run_with_something_else_than_files_is_read_to_its_end(tmp_path: Path, special: str) -> None:
    keys = make_keys(tmp_path / "keys")
    run = write_run(tmp_path / "run", keys)
    files = [path for path in run.rglob("*") if path.is_file()]
    assert len(files) == 10
    for path in files:
        shutil.copytree(run, tmp_path / "copy", symlinks=True, copy_function=shutil.copyfile)
        put(tmp_path / "copy" / path.relative_to(run), special)
        with suppress(QinglanError):
            audit(str(tmp_path / "copy"), keys.policy, now=datetime.now(UTC))
        shutil.rmtree(tmp_path / "copy")


@pytest.fixture
def store(scene: Scene, tmp_path: Path) -> Store:
    store = open_store(str(tmp_path / "store"))
    store.push(scene.folder, digest(scene.folder))
    store.point(NAME, digest(scene.folder), None, "gate")
    store.attach(digest(scene.folder), "note", b"{}")
    return store


@pytest.mark.slow
@pytest.mark.parametrize("special", KINDS)
def test_a_store_with_something_else_than_files_answers_with_an_error(
    store: Store, scene: Scene, tmp_path: Path, special: str
) -> None:
    root, release_digest = tmp_path / "store", digest(scene.folder)
    for path in [path for path in root.rglob("*") if path.is_file()]:
        content = path.read_bytes()
        put(path, special)
        with pytest.raises(QinglanError):
            store.pull(release_digest, tmp_path / "pulled")
            store.notes(release_digest)
            assert store.name(NAME) is not None
            raise QinglanError
        list(store.digests())
        with suppress(QinglanError):
            list(store.names())
        shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
        path.write_bytes(content)
    store.pull(release_digest, tmp_path / "pulled")


@pytest.mark.parametrize("size", [10**12, 10**15, 10**30])
def test_a_size_that_no_file_has_costs_no_time_and_no_memory(
    store: Store, scene: Scene, tmp_path: Path, size: int
) -> None:
    release_digest = digest(scene.folder)
    path = tmp_path / "store" / "releases" / f"{release_digest}.json"
    manifest = orjson.loads(path.read_bytes())
    manifest["files"]["report.html"]["size"] = 0
    text = orjson.dumps(manifest).replace(b'"size":0}', b'"size":%d}' % size)
    path.chmod(0o644)
    path.write_bytes(text)

    with pytest.raises(QinglanError, match=r"not the bytes that were pushed|size: Input should be less than"):
        store.pull(release_digest, tmp_path / "pulled")
