"""Files that come from a shelf: on from where a pull was cut off, and only the right bytes."""

import os
from collections.abc import Callable
from pathlib import Path
from threading import Thread

import pytest

from qinglan.errors import ConfigError, DataError, OutageError
from qinglan.files.digests import digest, file_digests
from qinglan.store import Store, open_store
from qinglan.store.download import staging_folder

PART_SIZE = 1 << 20
PIECE_SIZE = PART_SIZE // 2
LARGE = 3 * PART_SIZE + 256


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts and pieces a sixteenth as large as they are, so that a file of many takes no time."""
    for module in ("backend", "store", "download"):
        monkeypatch.setattr(f"qinglan.store.{module}.MIN_PART_SIZE", PART_SIZE)
    monkeypatch.setattr("qinglan.store.download.PIECE_SIZE", PIECE_SIZE)


class Counted:
    """A shelf that counts what is fetched from it, and gives no more after so many pieces."""

    def __init__(self, store: Store, most: int = 10**6) -> None:
        self.shelf, self.most, self.fetched = store.shelf, most, 0
        self._part = store.shelf.part
        store.shelf.part = self.part  # type: ignore[method-assign]

    def part(self, key: str, start: int, size: int) -> bytes:
        if self.fetched == self.most:
            raise OutageError("gone")
        self.fetched += 1
        return self._part(key, start, size)


@pytest.fixture
def pushed(tmp_path: Path) -> tuple[str, str]:
    folder = tmp_path / "artifact"
    folder.mkdir()
    (folder / "large").write_bytes(bytes(range(256)) * (LARGE // 256))
    (folder / "small").write_text("small")
    sha = digest(folder)
    open_store(str(tmp_path / "store")).push(folder, sha)
    return str(tmp_path / "store"), sha


def partial(folder: Path) -> Path:
    [result] = folder.glob(".back.*.pulling")
    return result / "files"


def cut_off(pushed: tuple[str, str], tmp_path: Path, after: int) -> Path:
    """A pull that got so many pieces, the small file among them; what it left."""
    store = open_store(pushed[0])
    Counted(store, after)
    with pytest.raises(OutageError):
        store.pull(pushed[1], tmp_path / "back")
    assert not (tmp_path / "back").exists()
    return partial(tmp_path)


def test_a_pull_goes_on_where_it_was(pushed: tuple[str, str], tmp_path: Path) -> None:
    left = cut_off(pushed, tmp_path, 3)
    begun = (left / "large").stat().st_size
    store = open_store(pushed[0])
    again = Counted(store)

    store.pull(pushed[1], tmp_path / "back")

    assert begun == 2 * PIECE_SIZE
    assert again.fetched == -(-(LARGE - begun) // PIECE_SIZE)
    assert digest(tmp_path / "back") == pushed[1]
    assert not list(tmp_path.glob(".back*"))


@pytest.mark.parametrize("torn", [b"!", b"!" * (LARGE + 1)])
def test_a_damaged_partial_download_is_fetched_again(pushed: tuple[str, str], tmp_path: Path, torn: bytes) -> None:
    for name in ("large", "small"):
        (cut_off(pushed, tmp_path, 3) / name).write_bytes(torn)

    open_store(pushed[0]).pull(pushed[1], tmp_path / "back")

    assert digest(tmp_path / "back") == pushed[1]


def test_a_pull_of_another_artifact_forgets_what_the_first_one_left(pushed: tuple[str, str], tmp_path: Path) -> None:
    cut_off(pushed, tmp_path, 3)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "file").write_text("other")
    store = open_store(pushed[0])
    store.push(tmp_path / "other", digest(tmp_path / "other"))

    store.pull(digest(tmp_path / "other"), tmp_path / "back")

    assert file_digests(tmp_path / "back").keys() == {"file"}
    assert not list(tmp_path.glob(".back*"))


def test_several_who_pull_to_one_place_do_not_disturb_each_other(pushed: tuple[str, str], tmp_path: Path) -> None:
    pullers = [Thread(target=open_store(pushed[0]).pull, args=(pushed[1], tmp_path / "back")) for _ in range(4)]
    for puller in pullers:
        puller.start()
    for puller in pullers:
        puller.join()

    assert digest(tmp_path / "back") == pushed[1]
    assert not list(tmp_path.glob(".back*"))


def test_an_existing_folder_is_replaced_only_by_a_whole_artifact(pushed: tuple[str, str], tmp_path: Path) -> None:
    (tmp_path / "back").mkdir()
    (tmp_path / "back" / "old").write_text("old")

    for end in (DataError, OutageError):
        with pytest.raises(end), staging_folder(tmp_path / "back", pushed[1]) as folder:
            (folder / "new").write_text("new")
            raise end("no")
        assert file_digests(tmp_path / "back").keys() == {"old"}
    with staging_folder(tmp_path / "back", pushed[1]) as folder:
        assert file_digests(folder).keys() == {"new"}

    assert file_digests(tmp_path / "back").keys() == {"new"}


def test_a_pull_that_was_killed_after_its_end_does_not_stop_the_next(pushed: tuple[str, str], tmp_path: Path) -> None:
    open_store(pushed[0]).pull(pushed[1], tmp_path / "back")
    before = tmp_path / f".back.{pushed[1][:16]}.pulling" / "before"
    before.mkdir(parents=True)
    (before / "old").write_text("old")

    open_store(pushed[0]).pull(pushed[1], tmp_path / "back")

    assert digest(tmp_path / "back") == pushed[1]
    assert not list(tmp_path.glob(".back*"))


def test_a_place_that_cannot_be_written_is_named(pushed: tuple[str, str], tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")

    with pytest.raises(ConfigError, match=r"file.*: (Not a directory|File exists)"):
        open_store(pushed[0]).pull(pushed[1], tmp_path / "file" / "back")


def a_link(files: Path, elsewhere: Path) -> None:
    (files / "small").symlink_to(elsewhere)


def a_link_to_nothing(files: Path, elsewhere: Path) -> None:
    (files / "small").symlink_to(elsewhere.with_name("new"))


def a_hard_link(files: Path, elsewhere: Path) -> None:
    (files / "small").hardlink_to(elsewhere)


def a_pipe(files: Path, elsewhere: Path) -> None:
    os.mkfifo(files / "small")


def a_file_too_many(files: Path, elsewhere: Path) -> None:
    (files / "config.json").write_text("{}")


def a_folder_too_many(files: Path, elsewhere: Path) -> None:
    (files / "empty").mkdir()


def a_folder_in_place_of_a_file(files: Path, elsewhere: Path) -> None:
    (files / "small").mkdir()


def a_linked_folder(files: Path, elsewhere: Path) -> None:
    files.rmdir()
    files.symlink_to(elsewhere.parent)


LAID = (
    a_link, a_link_to_nothing, a_hard_link, a_pipe, a_file_too_many, a_folder_too_many, a_folder_in_place_of_a_file,
    a_linked_folder,
)  # fmt: skip


@pytest.mark.parametrize("lay", LAID, ids=lambda lay: lay.__name__)
def test_what_somebody_laid_in_an_unfinished_pull_is_neither_written_nor_published(
    pushed: tuple[str, str], tmp_path: Path, lay: Callable[[Path, Path], None]
) -> None:
    elsewhere = tmp_path / "elsewhere" / "file"
    elsewhere.parent.mkdir()
    elsewhere.write_text("genuine")
    files = tmp_path / f".back.{pushed[1][:16]}.pulling" / "files"
    files.mkdir(parents=True)
    files.parent.chmod(0o700)
    lay(files, elsewhere)

    open_store(pushed[0]).pull(pushed[1], tmp_path / "back")

    assert elsewhere.read_text() == "genuine" and list(elsewhere.parent.iterdir()) == [elsewhere]
    assert digest(tmp_path / "back") == pushed[1]
    assert {path.name for path in (tmp_path / "back").iterdir()} == {"large", "small"}
    assert not (tmp_path / "back").is_symlink() and not list(tmp_path.glob(".back*"))
    assert all(path.lstat().st_nlink == 1 for path in (tmp_path / "back").iterdir())


def test_a_link_laid_while_a_pull_runs_is_not_written_through(pushed: tuple[str, str], tmp_path: Path) -> None:
    (tmp_path / "elsewhere").write_text("genuine")
    store = open_store(pushed[0])
    counted = Counted(store)
    part = store.shelf.part

    def lay_first(key: str, start: int, size: int) -> bytes:
        if key.endswith("small"):
            (partial(tmp_path) / "large").symlink_to(tmp_path / "elsewhere")
        return part(key, start, size)

    store.shelf.part = lay_first  # type: ignore[method-assign]
    with pytest.raises(ConfigError, match="Too many levels of symbolic links"):
        store.pull(pushed[1], tmp_path / "back")

    assert counted.fetched == 1 and (tmp_path / "elsewhere").read_text() == "genuine"
    assert not (tmp_path / "back").exists()


@pytest.mark.parametrize("mode", [0o722, 0o770, 0o777])
def test_an_unfinished_pull_that_others_can_write_to_is_refused(
    pushed: tuple[str, str], tmp_path: Path, mode: int
) -> None:
    staging = tmp_path / f".back.{pushed[1][:16]}.pulling"
    staging.mkdir()
    staging.chmod(mode)

    with pytest.raises(ConfigError, match=r"pulling: .*others can write to it. Remove it and pull again"):
        open_store(pushed[0]).pull(pushed[1], tmp_path / "back")


def test_a_link_in_place_of_an_unfinished_pull_is_refused(pushed: tuple[str, str], tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    (tmp_path / f".back.{pushed[1][:16]}.pulling").symlink_to(tmp_path / "elsewhere")

    with pytest.raises(ConfigError, match="Remove it and pull again"):
        open_store(pushed[0]).pull(pushed[1], tmp_path / "back")
    assert not list((tmp_path / "elsewhere").iterdir())


@pytest.mark.timeout(20)
@pytest.mark.parametrize("digest_begin", ["", "0" * 16], ids=["this artifact", "another artifact"])
@pytest.mark.parametrize("kind", ["pipe", "link", "hard link", "folder"])
def test_a_lock_that_is_no_plain_file_is_refused_at_once(
    pushed: tuple[str, str], tmp_path: Path, kind: str, digest_begin: str
) -> None:
    staging = tmp_path / f".back.{digest_begin or pushed[1][:16]}.pulling"
    staging.mkdir(mode=0o700)
    (tmp_path / "elsewhere").write_text("genuine")
    lock = staging / "lock"
    lay: dict[str, Callable[[], None]] = {
        "pipe": lambda: os.mkfifo(lock),
        "link": lambda: lock.symlink_to(tmp_path / "new"),
        "hard link": lambda: lock.hardlink_to(tmp_path / "elsewhere"),
        "folder": lambda: lock.mkdir(),
    }
    lay[kind]()

    with pytest.raises(ConfigError, match="See to that and pull again"):
        open_store(pushed[0]).pull(pushed[1], tmp_path / "back")
    assert not (tmp_path / "new").exists() and (tmp_path / "elsewhere").read_text() == "genuine"


def test_only_its_owner_enters_an_unfinished_pull_and_the_artifact_has_the_usual_mode(
    pushed: tuple[str, str], tmp_path: Path
) -> None:
    before = os.umask(0o022)
    try:
        left = cut_off(pushed, tmp_path, 3)
        assert left.parent.stat().st_mode & 0o777 == 0o700
        open_store(pushed[0]).pull(pushed[1], tmp_path / "back")
    finally:
        os.umask(before)
    assert (tmp_path / "back").stat().st_mode & 0o777 == 0o755


def test_an_old_folder_is_put_back_after_a_pull_was_killed_between_two_renames(
    pushed: tuple[str, str], tmp_path: Path
) -> None:
    """The next pull is of another artifact and fails: the old folder must be there."""
    before = tmp_path / f".back.{pushed[1][:16]}.pulling" / "before"
    before.mkdir(parents=True)
    before.parent.chmod(0o700)
    (before / "old").write_text("old")

    with pytest.raises(OutageError), staging_folder(tmp_path / "back", "0" * 64):
        raise OutageError("gone")

    assert file_digests(tmp_path / "back").keys() == {"old"}
