"""A store in a folder of this machine."""

import os
import subprocess
from pathlib import Path

import pytest

from qinglan.errors import ConfigError
from qinglan.files.digests import digest
from qinglan.files.files import pid_space
from qinglan.store import open_store
from tests.servers.store_contract import *  # noqa: F403
from tests.servers.store_contract import MISSING, NAME, StoreAccess, release


@pytest.fixture
def access(tmp_path: Path) -> StoreAccess:
    root = tmp_path / "the store"
    root.mkdir()

    def overwrite(key: str, data: bytes) -> None:
        (root / key).parent.mkdir(parents=True, exist_ok=True)
        (root / key).unlink(missing_ok=True)
        (root / key).write_bytes(data)

    return StoreAccess(open_store(str(root)), overwrite, lambda key: (root / key).unlink())


def test_files_are_for_reading_alone_and_nothing_else_is_left(access: StoreAccess, tmp_path: Path) -> None:
    folder, sha = release(tmp_path / "release")
    access.store.push(folder, sha)
    access.store.point(NAME, sha, expected=None, by="gate")

    files = [path for path in (tmp_path / "the store").rglob("*") if path.is_file()]

    assert len(files) == 4 + 2
    assert {path.stat().st_mode & 0o777 for path in files} == {0o444}


def test_partial_files_of_a_killed_process_are_removed(access: StoreAccess, tmp_path: Path) -> None:
    left = tmp_path / "the store" / ".partial" / f"{pid_space()}-999999999.abc"
    left.parent.mkdir(parents=True)
    other = left.with_name(f"0a0a0a0a-{os.getpid()}.abc")
    for path in (left, other):
        path.write_text("half")

    access.store.push(*release(tmp_path / "release"))

    assert not left.exists() and other.exists(), "another pod's process may still write"


def test_anyone_can_check_a_history_with_sha256sum(access: StoreAccess, tmp_path: Path) -> None:
    folder, sha = release(tmp_path / "release")
    access.store.push(folder, sha)
    access.store.point(NAME, sha, expected=None, by="gate")
    second = access.store.point(NAME, sha, expected=sha, by="gate").current

    first = subprocess.check_output(["sha256sum", tmp_path / "the store" / "names" / NAME / "000001.json"], text=True)

    assert first.split()[0] == second.previous


def test_a_folders_address_opens_it_again(access: StoreAccess, tmp_path: Path) -> None:
    folder, sha = release(tmp_path / "release")
    uri = access.store.push(folder, sha)

    assert uri.startswith("file:///")
    assert digest(open_store(access.store.address).pull(sha, tmp_path / "back")) == sha


def test_an_address_of_another_kind_is_refused() -> None:
    with pytest.raises(ConfigError, match="No store was named"):
        open_store("")
    with pytest.raises(ConfigError, match="not gs://"):
        open_store("gs://bucket/prefix")


def test_a_folder_that_is_not_there_is_no_empty_store(tmp_path: Path) -> None:
    store = open_store(str(tmp_path / "nowhere"))

    for ask in (
        lambda: store.has(MISSING), lambda: list(store.digests()), lambda: store.name(NAME),
        lambda: list(store.names()), lambda: store.pull(MISSING, tmp_path / "back"), lambda: store.notes(MISSING),
        lambda: store.attach(MISSING, "break-glass", b"!"), lambda: store.point(NAME, MISSING, None, "gate"),
    ):  # fmt: skip
        with pytest.raises(ConfigError, match="nowhere: there is no store here"):
            ask()
    assert not (tmp_path / "nowhere").exists()

    folder, sha = release(tmp_path / "release")
    store.push(folder, sha)
    assert store.name(NAME) is None


def test_a_store_cannot_be_made_under_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")

    with pytest.raises(ConfigError, match="no store can be made here"):
        open_store(str(tmp_path / "file" / "store")).push(*release(tmp_path / "release"))
