"""Files that come from a backend: whole and with the right bytes, or not at all."""

from collections.abc import Callable
from pathlib import Path

import pytest

from qinglan.errors import ConfigError, DataError, OutageError
from qinglan.files.digests import digest, file_digests
from qinglan.store import Store, open_store

PIECE_SIZE = 1 << 10
LARGE = 6 * PIECE_SIZE + 256


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("qinglan.store.download.MIN_PART_SIZE", 2 * PIECE_SIZE)
    monkeypatch.setattr("qinglan.store.download.PIECE_SIZE", PIECE_SIZE)


@pytest.fixture
def pushed(tmp_path: Path) -> tuple[Store, str]:
    folder = tmp_path / "artifact"
    folder.mkdir()
    (folder / "large").write_bytes(bytes(range(256)) * (LARGE // 256))
    (folder / "small").write_text("small")
    sha, store = digest(folder), open_store(str(tmp_path / "store"))
    store.push(folder, sha)
    return store, sha


def before_piece(store: Store, number: int, act: Callable[[], object]) -> None:
    """Do something before this piece of the large file is fetched."""
    part = store.backend.part

    def acting(key: str, start: int, size: int) -> bytes:
        if key.endswith("large") and start == number * PIECE_SIZE:
            act()
        return part(key, start, size)

    store.backend.part = acting  # type: ignore[method-assign]


def fail() -> None:
    raise OutageError("gone")


def test_a_pull_that_fails_leaves_the_old_folder_and_the_next_begins_again(
    pushed: tuple[Store, str], tmp_path: Path
) -> None:
    store, sha = pushed
    back = tmp_path / "back"
    back.mkdir()
    (back / "old").write_text("old")
    before_piece(store, 3, fail)

    with pytest.raises(OutageError):
        store.pull(sha, back)
    assert file_digests(back).keys() == {"old"} and not list(tmp_path.glob(".back*"))

    open_store(store.address).pull(sha, back)
    assert digest(back) == sha and not list(tmp_path.glob(".back*"))


@pytest.mark.parametrize(
    "change", [lambda data: data + b"!", lambda data: data[:-PIECE_SIZE], lambda data: b"!" * LARGE]
)
def test_a_large_file_of_other_bytes_is_refused(
    pushed: tuple[Store, str], tmp_path: Path, change: Callable[[bytes], bytes]
) -> None:
    store, sha = pushed
    path = tmp_path / "store" / "releases" / sha / "large"
    path.chmod(0o644)
    path.write_bytes(change(path.read_bytes()))

    with pytest.raises(DataError, match="large: not the bytes that were pushed"):
        store.pull(sha, tmp_path / "back")
    assert not list(tmp_path.glob("*back*"))


def test_a_folder_that_cannot_be_written_is_named(pushed: tuple[Store, str], tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")

    with pytest.raises(ConfigError, match=r"file.*: (Not a directory|File exists)"):
        pushed[0].pull(pushed[1], tmp_path / "file" / "back")


def test_a_link_laid_while_a_pull_runs_is_not_written_through(pushed: tuple[Store, str], tmp_path: Path) -> None:
    (tmp_path / "elsewhere").write_text("genuine")
    store, sha = pushed
    part = store.backend.part

    def lay_first(key: str, start: int, size: int) -> bytes:
        if key.endswith("small"):
            [partial] = tmp_path.glob(".back.*.partial")
            (partial / "large").symlink_to(tmp_path / "elsewhere")
        return part(key, start, size)

    store.backend.part = lay_first  # type: ignore[method-assign]
    with pytest.raises(ConfigError, match="large: File exists"):
        store.pull(sha, tmp_path / "back")

    assert (tmp_path / "elsewhere").read_text() == "genuine" and not (tmp_path / "back").exists()
