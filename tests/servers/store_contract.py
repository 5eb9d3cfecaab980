"""Promises of a store on any backend: imported by the tests of a folder and of S3, which bring `access`."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import pytest

from qinglan.errors import ConflictError, DataError
from qinglan.files.digests import digest, file_digests, tree_digest
from qinglan.store import Store, check_history, open_store
from qinglan.store.backend import ObjectInfo, SourceFile
from qinglan.store.manifest import Manifest, ManifestFile
from qinglan.terminal.progress import Transfer

NAME = "fivedoctors/rewriter"
MISSING = "0" * 64

KILLED_AT_THE_THIRD_FILE = f"""
import os, sys
from pathlib import Path
from qinglan.store import open_store

store = open_store(sys.argv[1])
put, done = store.backend.put, []

def dying(*arguments):
    done.append(1)
    if len(done) == 3:
        os.kill(os.getpid(), {int(signal.SIGKILL)})
    put(*arguments)

store.backend.put = dying
store.push(Path(sys.argv[2]), sys.argv[3])
"""


class StoreAccess(NamedTuple):
    """A new store, and what somebody can do to its bytes behind its back."""

    store: Store
    overwrite: Callable[[str, bytes], None]
    remove: Callable[[str], None]


def release(folder: Path, weights: bytes = b"weights") -> tuple[Path, str]:
    (folder / "model" / "分词").mkdir(parents=True)
    (folder / "model" / "model.safetensors").write_bytes(weights * 1000)
    (folder / "model" / "分词" / "词表 1.json").write_text("{}")
    (folder / "evaluation.json").write_text('{"verdict": "promote"}')
    (folder / "empty").write_bytes(b"")
    return folder, digest(folder)


@pytest.fixture
def pushed(access: StoreAccess, tmp_path: Path) -> str:
    folder, sha = release(tmp_path / "release")
    access.store.push(folder, sha)
    return sha


def test_a_pushed_artifact_is_pulled_back_unchanged(access: StoreAccess, tmp_path: Path) -> None:
    folder, sha = release(tmp_path / "release")

    uri = access.store.push(folder, sha)
    back = access.store.pull(sha, tmp_path / "back")

    assert file_digests(back) == file_digests(folder)
    assert uri == f"{access.store.address}/releases/{sha}"
    assert access.store.has(sha)
    assert list(access.store.digests()) == [sha]


def test_a_store_opened_anew_knows_what_was_pushed(access: StoreAccess, pushed: str) -> None:
    assert list(open_store(access.store.address).digests()) == [pushed]


def test_pushed_again_it_is_checked_and_not_written(
    access: StoreAccess, pushed: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(access.store.backend, "put", None)
    monkeypatch.setattr(access.store.backend, "create", None)

    assert access.store.push(tmp_path / "release", pushed).endswith(pushed)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda access, base: access.overwrite(f"{base}/evaluation.json", b"{}"), "evaluation.json has other bytes"),
        (lambda access, base: access.overwrite(f"{base}/model/more", b"{}"), "model/more belongs to nothing"),
        (lambda access, base: access.remove(f"{base}/empty"), "empty is missing"),
    ],
)
def test_pushed_again_it_tells_what_became_of_the_first_copy(
    access: StoreAccess, pushed: str, tmp_path: Path, damage: Callable[[StoreAccess, str], None], message: str
) -> None:
    damage(access, f"releases/{pushed}")

    with pytest.raises(DataError, match=message):
        access.store.push(tmp_path / "release", pushed)


def test_a_digest_that_is_not_the_folders_own_is_refused(access: StoreAccess, tmp_path: Path) -> None:
    folder, sha = release(tmp_path / "release")

    with pytest.raises(DataError, match=f"its digest is {sha}, not {MISSING}"):
        access.store.push(folder, MISSING)

    assert list(access.store.digests()) == []


def test_a_file_that_changes_meanwhile_is_not_kept(
    access: StoreAccess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, sha = release(tmp_path / "release")
    put = access.store.backend.put

    def late(key: str, source: SourceFile, tally: Transfer) -> None:
        source.path.write_bytes(b"something else")
        put(key, source, tally)

    monkeypatch.setattr(access.store.backend, "put", late)

    with pytest.raises(DataError, match="changed while it was being pushed"):
        access.store.push(folder, sha)

    assert not access.store.has(sha)


def test_a_push_that_was_killed_is_not_seen_and_can_be_done_again(access: StoreAccess, tmp_path: Path) -> None:
    folder, sha = release(tmp_path / "release")
    command = [sys.executable, "-c", KILLED_AT_THE_THIRD_FILE, access.store.address, str(folder), sha]

    killed = subprocess.run(command, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)})

    assert killed.returncode == -signal.SIGKILL
    assert not access.store.has(sha)
    assert list(access.store.digests()) == []
    with pytest.raises(DataError, match=f"no releases/{sha}"):
        access.store.pull(sha, tmp_path / "back")
    access.store.push(folder, sha)
    assert digest(access.store.pull(sha, tmp_path / "back")) == sha


def test_many_can_push_the_same_at_once(access: StoreAccess, tmp_path: Path) -> None:
    folder, sha = release(tmp_path / "release")

    with ThreadPoolExecutor(4) as pool:
        uris = set(pool.map(lambda _: access.store.push(folder, sha), range(4)))

    assert len(uris) == 1
    assert digest(access.store.pull(sha, tmp_path / "back")) == sha


@pytest.mark.parametrize("forged", [b"other bytes", b"weights" * 999 + b"Weights", b"weights" * 1001, b""])
def test_wrong_bytes_are_refused_and_nothing_is_left(
    access: StoreAccess, pushed: str, tmp_path: Path, forged: bytes
) -> None:
    access.overwrite(f"releases/{pushed}/model/model.safetensors", forged)
    before = tmp_path / "back"
    before.mkdir()
    (before / "old").write_text("old")

    with pytest.raises(DataError, match=r"model\.safetensors: not the bytes that were pushed"):
        access.store.pull(pushed, before)

    assert file_digests(before).keys() == {"old"}
    assert not list(tmp_path.glob(".back*"))


def test_a_file_that_is_gone_is_named(access: StoreAccess, pushed: str, tmp_path: Path) -> None:
    access.remove(f"releases/{pushed}/evaluation.json")

    with pytest.raises(DataError, match=r"evaluation\.json"):
        access.store.pull(pushed, tmp_path / "back")

    assert not (tmp_path / "back").exists()


def test_a_manifest_of_other_files_is_refused(access: StoreAccess, pushed: str, tmp_path: Path) -> None:
    other = Manifest(files={"a": ManifestFile(sha256=MISSING, size=1)})
    access.overwrite(f"releases/{pushed}.json", other.dump())

    with pytest.raises(DataError, match=f"lists the files of {other.digest}"):
        access.store.pull(pushed, tmp_path / "back")


@pytest.mark.parametrize("name", ["../evil", "/tmp/evil", "a/../../evil", "a//b", "a\\b", "a\nb"])
def test_a_manifest_cannot_lead_out_of_the_folder(access: StoreAccess, tmp_path: Path, name: str) -> None:
    forged = Manifest.model_construct(files={name: ManifestFile(sha256=MISSING, size=1)})
    sha = tree_digest({name: MISSING})
    access.overwrite(f"releases/{sha}.json", forged.dump())

    with pytest.raises(DataError, match="Nothing it names can be trusted"):
        access.store.pull(sha, tmp_path / "deep" / "back")


@pytest.mark.parametrize(
    "digest", ["", "abc", MISSING.replace("0", "A"), f"../{MISSING}", f"{MISSING}\n", "../../etc"]
)
def test_a_text_that_is_no_digest_is_refused(access: StoreAccess, tmp_path: Path, digest: str) -> None:
    for ask in (access.store.has, lambda sha: access.store.pull(sha, tmp_path / "back")):
        with pytest.raises(DataError, match="is no digest"):
            ask(digest)


@pytest.mark.parametrize("word", ["", "../releases", "a/b", "Rollout"])
def test_a_malformed_note_kind_is_refused(access: StoreAccess, pushed: str, word: str) -> None:
    with pytest.raises(DataError, match="no word for a note"):
        access.store.attach(pushed, word, b"note")


def test_a_link_is_refused(access: StoreAccess, tmp_path: Path) -> None:
    folder, sha = release(tmp_path / "release")
    (folder / "link").symlink_to("/etc/passwd")

    with pytest.raises(DataError, match="link: a link or a special file"):
        access.store.push(folder, sha)


def test_a_folder_without_files_is_refused(access: StoreAccess, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no files in it"):
        access.store.push(tmp_path, digest(tmp_path))


def test_a_name_moves_and_keeps_where_it_was(access: StoreAccess, pushed: str, tmp_path: Path) -> None:
    folder, second = release(tmp_path / "second", b"better")
    access.store.push(folder, second)

    assert access.store.name(NAME) is None
    access.store.point(NAME, pushed, expected=None, by="gate")
    access.store.point(NAME, second, expected=pushed, by="rollout")
    access.store.point(NAME, pushed, expected=second, by="周姐")

    now = access.store.name(NAME)
    assert now is not None and now.digest == pushed
    assert [(entry.digest, entry.by) for entry in now.history] == [
        (pushed, "gate"), (second, "rollout"), (pushed, "周姐"),
    ]  # fmt: skip
    assert now.history[0].previous is None
    assert now.current.previous == now.history[1].sha256
    assert list(access.store.names()) == [NAME]


def test_a_late_writer_of_a_name_is_told_who_was_faster(access: StoreAccess, pushed: str) -> None:
    first = access.store.point(NAME, pushed, expected=None, by="周姐").current

    for expected in (None, MISSING):
        with pytest.raises(ConflictError, match=f"周姐 pointed it at {pushed} on {first.time}".replace("+", r"\+")):
            access.store.point(NAME, pushed, expected=expected, by="gate")

    with pytest.raises(ConflictError, match="there is no such name"):
        access.store.point("chengla/rewriter", pushed, expected=MISSING, by="gate")


def test_of_many_who_point_at_once_exactly_one_wins(access: StoreAccess, pushed: str) -> None:
    def point(number: int) -> str | None:
        try:
            return (
                open_store(access.store.address).point(NAME, pushed, expected=None, by=f"racer {number}").current.by
            )
        except ConflictError as lost:
            assert "racer" in str(lost)
            return None

    with ThreadPoolExecutor(8) as pool:
        winners = [by for by in pool.map(point, range(8)) if by]

    now = access.store.name(NAME)
    assert now is not None
    assert winners == [entry.by for entry in now.history]
    assert len(winners) == 1


def test_a_name_points_only_at_what_is_whole(access: StoreAccess) -> None:
    with pytest.raises(DataError, match="Push it first"):
        access.store.point(NAME, MISSING, expected=None, by="gate")


@pytest.mark.parametrize("name", ["", "rewriter", "a/b/c", "../b", "a/..", "A/b", "a/b\n", "/a", "a/", "a/.b"])
def test_a_text_that_is_no_name_is_refused(access: StoreAccess, name: str) -> None:
    with pytest.raises(DataError, match="is no name"):
        access.store.name(name)


def test_a_rewritten_history_shows(access: StoreAccess, pushed: str, tmp_path: Path) -> None:
    folder, second = release(tmp_path / "second", b"better")
    access.store.push(folder, second)
    first = access.store.point(NAME, pushed, expected=None, by="gate").current
    access.store.point(NAME, second, expected=pushed, by="gate")

    access.overwrite(f"names/{NAME}/000001.json", first.model_copy(update={"by": "nobody"}).dump())

    assert len(check_history(access.store.history(NAME))) == 1
    with pytest.raises(DataError, match="entry 2 says that it follows"):
        access.store.name(NAME)
    with pytest.raises(DataError, match="entry 2 says that it follows"):
        access.store.point(NAME, pushed, expected=second, by="gate")


def test_an_entry_that_is_gone_shows(access: StoreAccess, pushed: str) -> None:
    access.store.point(NAME, pushed, expected=None, by="gate")
    access.store.point(NAME, pushed, expected=pushed, by="gate")
    access.remove(f"names/{NAME}/000001.json")

    with pytest.raises(DataError, match="entry 000001 is gone"):
        access.store.name(NAME)


def test_the_shelf_tells_what_lies_there(access: StoreAccess, pushed: str, tmp_path: Path) -> None:
    result = access.store.backend.objects(f"releases/{pushed}/")

    assert result["empty"] == ObjectInfo(digest(tmp_path / "release" / "empty"), 0)
    assert result.keys() == file_digests(tmp_path / "release").keys()


def test_a_note_lies_beside_a_release_and_leaves_it_as_it_was(access: StoreAccess, pushed: str) -> None:
    access.store.attach(pushed, "break-glass", b"one")
    access.store.attach(pushed, "break-glass", b"two")
    access.store.attach(pushed, "break-glass", b"two")

    assert sorted(access.store.notes(pushed)) == [b"one", b"two"]
    assert list(access.store.digests()) == [pushed]
    assert access.store.notes(MISSING) == []


def test_children_are_the_names_directly_there_with_the_beginning_that_is_asked_for(access: StoreAccess) -> None:
    backend = access.store.backend
    for name in ("a/10-x", "a/10-y", "a/1", "a/11/z", "a/20-x", "ab/10-x"):
        backend.create(name, b"")

    assert backend.children("a/") == ["1", "10-x", "10-y", "11", "20-x"]
    assert backend.children("a/", "10") == ["10-x", "10-y"]
    assert backend.children("a/", "1") == ["1", "10-x", "10-y", "11"]
    assert backend.children("a/", "3") == backend.children("b/", "1") == []


def test_a_note_needs_a_release_and_a_plain_word(access: StoreAccess, pushed: str) -> None:
    with pytest.raises(DataError, match="Push it first"):
        access.store.attach(MISSING, "break-glass", b"one")
    with pytest.raises(DataError):
        access.store.attach(pushed, "../releases", b"one")
    with pytest.raises(DataError, match="no SHA-256"):
        access.store.notes("..")


def test_a_changed_note_is_named_and_keeps_no_other_from_being_read(access: StoreAccess, pushed: str) -> None:
    access.store.attach(pushed, "break-glass", b"one")
    [child] = access.store.backend.children(f"notes/{pushed}/")
    access.overwrite(f"notes/{pushed}/{child}", b"another")
    access.store.attach(pushed, "rollout", b"two")
    access.store.backend.create(f"notes/{pushed}/garbage", b"!")

    assert access.store.notes(pushed) == [b"two"]
    assert access.store.changed_notes(pushed) == [child, "garbage"]
