"""A file is whole or not there."""

import asyncio
import os
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from qinglan.errors import DataError
from qinglan.files import (
    PRIVATE,
    atomic_folder,
    atomic_write,
    dump_line,
    open_private,
    pid_space,
    read_jsonl,
    sha256_text,
)
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


def left_by(writer: str, folder: Path, hours: float = 0.0) -> Path:
    """A half-written folder that a process left, as it is some hours later."""
    left = folder / f".model.{writer}.partial"
    left.mkdir()
    (left / "weights").write_text("half")
    for path in (left / "weights", left):
        os.utime(path, (time.time() - hours * 3600,) * 2)
    return left


def test_the_partial_folder_of_a_killed_process_is_removed(tmp_path: Path) -> None:
    left_by(f"{pid_space()}-999999999", tmp_path)
    at_work = left_by(f"{pid_space()}-{os.getppid()}", tmp_path, hours=48)

    with atomic_folder(tmp_path / "model") as partial:
        (partial / "a").write_text("x")

    assert sorted(tmp_path.iterdir()) == [at_work, tmp_path / "model"]
    assert [path.name for path in (tmp_path / "model").iterdir()] == ["a"]


def test_a_process_of_another_pod_is_not_told_by_its_pid(tmp_path: Path) -> None:
    gone_here, there_here = (left_by(f"0a0a0a0a-{pid}", tmp_path) for pid in (999999999, os.getpid()))
    yesterdays = left_by("0b0b0b0b-1", tmp_path, hours=25)
    busy = left_by("0c0c0c0c-1", tmp_path, hours=25)
    (busy / "more").write_text("just now")

    with atomic_folder(tmp_path / "model"):
        pass

    assert gone_here.exists() and there_here.exists() and busy.exists() and not yesterdays.exists()


def test_pods_whose_processes_have_the_same_pid_do_not_write_into_one_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with atomic_folder(tmp_path / "model") as first:
        (first / "of").write_text("first")
        monkeypatch.setattr("qinglan.files.pid_space", lambda: "0a0a0a0a")
        with atomic_folder(tmp_path / "model") as second, atomic_write(tmp_path / "card") as third:
            (second / "of").write_text("second")
            monkeypatch.undo()
            with atomic_write(tmp_path / "card") as fourth:
                assert fourth != third
        assert (first / "of").read_text() == "first"

    assert (tmp_path / "model" / "of").read_text() == "first"


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
