"""A file is whole or not there."""

import asyncio
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from qinglan.errors import DataError, QinglanError
from qinglan.files.files import (
    PRIVATE,
    atomic_folder,
    atomic_write,
    dump_line,
    pid_space,
    read_jsonl,
    remove_abandoned,
    writer_name,
)
from qinglan.files.plain_files import UnreadableFileError, open_lock
from qinglan.llm.paid.journal import Journal
from qinglan.rows.rows import Question

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
    ("line", "message"),
    [(b"{}", "id: Field required"), (b'{"id": 1}', "id: Input should be a"), (b"\xff\xfe", "not UTF-8"),
     (b'{"id": NaN}', "no JSON"), (b'{"id": "1", "id": "2"}', "'id' is there twice"), (b"[" * 99_999, "no JSON"),
     (dump_line(ROW).replace(b"question", b"qestion"), "qestion: Extra inputs")],
)  # fmt: skip
def test_a_bad_line_is_named_with_what_is_wrong(tmp_path: Path, line: bytes, message: str) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_bytes(dump_line(ROW) + line)

    with pytest.raises(DataError, match=rf"rows\.jsonl:2: .*{message}"):
        list(read_jsonl(path, Question))


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


def old_model(folder: Path) -> Path:
    model = folder / "model"
    model.mkdir(parents=True, exist_ok=True)
    (model / "weights").write_text("old")
    return model


KILLED_AT = ["first rename", "second rename", "delete"]


@pytest.mark.parametrize("step", KILLED_AT)
@pytest.mark.parametrize("end", [KeyboardInterrupt, OSError])
def test_a_folder_whose_replacement_is_interrupted_is_old_or_new(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str, end: type[BaseException]
) -> None:
    model = old_model(tmp_path)
    with pytest.raises(end), atomic_folder(model) as partial:
        (partial / "weights").write_text("new")
        fail_once(monkeypatch, step, end)

    assert (model / "weights").read_text() == ("new" if step == "delete" else "old")


def fail_once(monkeypatch: pytest.MonkeyPatch, step: str, end: type[BaseException]) -> None:
    """Raise at one step of the next replacement."""
    original, calls = (shutil.rmtree if step == "delete" else Path.rename), []
    fails_at = 2 if step == "second rename" else 1

    def step_or_failure(*args: Any, **options: Any) -> Any:
        calls.append(args)
        if len(calls) == fails_at:
            raise end(5, "interrupted")
        return original(*args, **options)

    target: Any = shutil if step == "delete" else Path
    monkeypatch.setattr(target, "rmtree" if step == "delete" else "rename", step_or_failure)


def killed_while_replacing(model: Path, step: str) -> None:
    """A process that is killed at a step of its replacement."""
    kill = "os.kill(os.getpid(), signal.SIGKILL)"
    code = f"""
import os, shutil, signal
from pathlib import Path
from qinglan.files.files import atomic_folder
original, calls, step = Path.rename, [], {step!r}
def rename(self, target):
    calls.append(self)
    if (step, len(calls)) in (("first rename", 1), ("second rename", 2)): {kill}
    return original(self, target)
def rmtree(*args, **options): {kill}
with atomic_folder(Path({str(model)!r})) as partial:
    (partial / "weights").write_text("new")
    Path.rename = rename
    if step == "delete": shutil.rmtree = rmtree
"""
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == -9


@pytest.mark.parametrize("step", KILLED_AT)
def test_after_a_kill_the_old_folder_is_put_back_or_the_new_one_is_there(tmp_path: Path, step: str) -> None:
    model = old_model(tmp_path)
    killed_while_replacing(model, step)

    with pytest.raises(RuntimeError), atomic_folder(model):
        raise RuntimeError  # the next run fails too: it must not have taken the old one

    assert (model / "weights").read_text() == ("new" if step == "delete" else "old")
    assert list(tmp_path.iterdir()) == [model]


def test_a_folder_that_another_pod_moved_aside_waits_a_day_for_it(tmp_path: Path) -> None:
    young, old = (old_model(tmp_path / "other").rename(tmp_path / f".{name}.0a0a0a0a-1.before") for name in "ab")
    for path in (old, old / "weights"):
        os.utime(path, (time.time() - 25 * 3600,) * 2)

    for name in "ab":
        remove_abandoned(tmp_path / name)

    assert young.exists() and not (tmp_path / "a").exists()
    assert not old.exists() and (tmp_path / "b" / "weights").read_text() == "old"


@pytest.mark.parametrize("laid", ["link", "link to nothing", "pipe"])
def test_a_file_is_not_written_through_what_lies_at_its_partial_name(tmp_path: Path, laid: str) -> None:
    (tmp_path / "elsewhere").write_text("genuine")
    partial = tmp_path / f".rows.jsonl.{writer_name()}.partial"
    if laid == "pipe":
        os.mkfifo(partial)
    else:
        partial.symlink_to(tmp_path / ("elsewhere" if laid == "link" else "new"))

    with atomic_write(tmp_path / "rows.jsonl") as target:
        target.write_text("rows")

    assert (tmp_path / "rows.jsonl").read_text() == "rows" and not (tmp_path / "rows.jsonl").is_symlink()
    assert (tmp_path / "elsewhere").read_text() == "genuine" and not (tmp_path / "new").exists()


@pytest.mark.timeout(20)
@pytest.mark.parametrize("kind", ["pipe", "folder", "device", "socket"])
@pytest.mark.parametrize("name", ["journal.sqlite", "journal.sqlite.lock"])
def test_a_journal_that_is_no_plain_file_is_refused_at_once(tmp_path: Path, name: str, kind: str) -> None:
    path = tmp_path / name
    special_file(path, kind)

    async def opened() -> None:
        with closing(Journal(tmp_path / "journal.sqlite")):
            pass

    with pytest.raises(QinglanError, match=r"journal\.sqlite"):
        asyncio.run(opened())


def special_file(path: Path, kind: str) -> None:
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    elif kind == "device":
        path.symlink_to("/dev/zero")
    else:
        with closing(socket.socket(socket.AF_UNIX)) as server:
            server.bind(str(path))


@pytest.mark.timeout(20)
@pytest.mark.parametrize("kind", ["pipe", "link", "hard link"])
def test_a_lock_is_a_plain_file_of_one_name(tmp_path: Path, kind: str) -> None:
    (tmp_path / "elsewhere").write_text("genuine")
    lock = tmp_path / "lock"
    lay: dict[str, Callable[[], None]] = {
        "pipe": lambda: os.mkfifo(lock),
        "link": lambda: lock.symlink_to(tmp_path / "elsewhere"),
        "hard link": lambda: lock.hardlink_to(tmp_path / "elsewhere"),
    }
    lay[kind]()

    with pytest.raises(UnreadableFileError, match="A plain file belongs there"):
        open_lock(lock)


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


def written(folder: Path) -> list[Path]:
    return [path for path in folder.glob("journal.sqlite*") if path.stat().st_size]


def test_the_owner_alone_reads_a_journal_and_what_lies_beside_it(tmp_path: Path, umask: int) -> None:
    async def modes_of_open_files() -> dict[str, int]:
        with closing(Journal(tmp_path / "journal.sqlite")):
            return {path.name: mode(path) for path in written(tmp_path)}

    modes = asyncio.run(modes_of_open_files())

    assert set(modes.values()) == {0o600}
    assert {"journal.sqlite", "journal.sqlite-wal"} <= set(modes)
