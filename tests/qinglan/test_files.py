"""A file is whole or not there."""

import asyncio
import os
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from qinglan.errors import DataError
from qinglan.files import PRIVATE, atomic_folder, atomic_write, dump_line, open_private, read_jsonl, sha256_text
from qinglan.llm.journal import Journal
from qinglan.rows import Question

ROW = Question(id="a", tenant_id="t", conversation_id="c", question="怎么吃")


def test_a_failed_write_leaves_the_old_file(tmp_path: Path) -> None:
    target = tmp_path / "rows.jsonl"
    target.write_text("old")

    with pytest.raises(RuntimeError), atomic_write(target) as partial:
        partial.write_text("half")
        raise RuntimeError

    assert target.read_text() == "old"
    assert list(tmp_path.iterdir()) == [target]


def test_rows_come_back_as_they_went(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_bytes(b"\xef\xbb\xbf" + dump_line(ROW) + b"\n" + dump_line(ROW))

    assert list(read_jsonl(path, Question)) == [(1, ROW), (3, ROW)]


@pytest.mark.parametrize(
    ("line", "said"),
    [(b"{}", "id: Field required"), (b'{"id": 1}', "id: Input should be a"), (b"\xff\xfe", "not UTF-8"),
     (b'{"id": NaN}', "no JSON"), (b'{"id": "1", "id": "2"}', "'id' is there twice"), (b"[" * 99_999, "no JSON"),
     (dump_line(ROW).replace(b"question", b"qestion"), "qestion: Extra inputs")],
)  # fmt: skip
def test_a_bad_line_is_named_with_what_is_wrong(tmp_path: Path, line: bytes, said: str) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_bytes(dump_line(ROW) + line)

    with pytest.raises(DataError, match=rf"rows\.jsonl:2: .*{said}"):
        list(read_jsonl(path, Question))


def test_no_two_lists_of_texts_share_a_digest() -> None:
    assert sha256_text("ab", "c") != sha256_text("a", "bc") != sha256_text("abc")


def test_the_partial_folder_of_a_killed_process_is_removed(tmp_path: Path) -> None:
    left = tmp_path / ".model.999999999.partial"
    left.mkdir()

    with atomic_folder(tmp_path / "model") as partial:
        (partial / "a").write_text("x")

    assert [path.name for path in tmp_path.iterdir()] == ["model"]


@pytest.fixture(params=[0o000, 0o002, 0o022, 0o077], ids=oct)
def umask(request: pytest.FixtureRequest) -> Iterator[int]:
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


def test_nobody_else_writes_a_file_whatever_the_umask(tmp_path: Path, umask: int) -> None:
    with atomic_write(tmp_path / "trust.yaml") as partial:
        partial.write_text("keys: {}")
    with atomic_write(tmp_path / "config.yaml", mode=PRIVATE) as partial:
        partial.write_text("a: 1")

    assert mode(tmp_path / "trust.yaml") == 0o644 & ~umask
    assert mode(tmp_path / "config.yaml") == 0o600


def test_the_owner_alone_reads_a_log_also_one_that_was_open_to_all(tmp_path: Path, umask: int) -> None:
    (tmp_path / "old.log").write_text("old")
    (tmp_path / "old.log").chmod(0o666)

    for name in ("new.log", "old.log"):
        with open_private(tmp_path / name, "ab") as log:
            log.write(b"new")
        assert mode(tmp_path / name) == 0o600
    assert (tmp_path / "old.log").read_text() == "oldnew"


def written(folder: Path) -> list[Path]:
    return [path for path in folder.glob("journal.sqlite*") if path.stat().st_size]


def test_the_owner_alone_reads_a_journal_and_what_lies_beside_it(tmp_path: Path, umask: int) -> None:
    async def modes_of_open_files() -> dict[str, int]:
        with closing(Journal(tmp_path / "journal.sqlite")):
            return {path.name: mode(path) for path in written(tmp_path)}

    modes = asyncio.run(modes_of_open_files())

    assert set(modes.values()) == {0o600}
    assert {"journal.sqlite", "journal.sqlite-wal"} <= set(modes)
