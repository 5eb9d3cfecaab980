"""A disk that is full or not ours ends in an error that says where and what to do; nothing half-written is left."""

import errno
import random
import resource
import shutil
import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import orjson
import pytest

from qinglan.errors import ConfigError, OutageError
from qinglan.files.files import atomic_folder, atomic_write
from qinglan.files.plain_files import UnwritableFileError, writing
from qinglan.rag.lexical.index import build_index
from qinglan.tables.tables import write_table

ROOM = 64 << 10
"""Bytes that a file may have while the disk is full."""


@contextmanager
def full_disk() -> Iterator[None]:
    """Every write beyond ROOM bytes of a file fails with EFBIG: Python ignores the signal that comes with it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (ROOM, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def noise(size: int) -> str:
    return random.Random(0).randbytes(size // 2).hex()


def knowledge_base(path: Path) -> Path:
    rows = ({"id": f"p{n}", "title": "t", "content": f"{noise(2000)} {n}"} for n in range(200))
    path.write_bytes(b"".join(orjson.dumps(row) + b"\n" for row in rows))
    return path


def text(out: Path) -> None:
    with atomic_write(out) as partial:
        partial.write_text(noise(8 * ROOM))


def array(out: Path) -> None:
    with atomic_write(out) as partial, partial.open("wb") as file:
        np.zeros(4 * ROOM).tofile(file)


def sheet(out: Path) -> None:
    with write_table(out, ["a"]) as add:
        for number in range(2000):
            add([random.Random(number).randbytes(100).hex()])


def parquet(out: Path) -> None:
    import pandas

    with atomic_write(out) as partial:
        pandas.DataFrame({"a": np.random.default_rng(0).random(8 * ROOM)}).to_parquet(partial)


def weights(out: Path) -> None:
    from safetensors.numpy import save_file

    with atomic_folder(out) as folder:
        save_file({"a": np.zeros(4 * ROOM)}, folder / "model.safetensors")


def copied(out: Path) -> None:
    with atomic_folder(out) as folder:
        shutil.copyfile(out.parent.parent / "kb.jsonl", folder / "kb.jsonl")


def index(out: Path) -> None:
    build_index(out.parent.parent / "kb.jsonl", out, "acme")


def database(out: Path) -> None:
    with writing(out), sqlite3.connect(out) as connection:
        connection.execute("PRAGMA journal_mode=MEMORY")
        connection.execute("PRAGMA max_page_count=4")
        connection.execute("CREATE TABLE t (a)")
        connection.executemany("INSERT INTO t VALUES (?)", [(noise(2000),)] * 100)


@pytest.mark.parametrize("write", [text, array, sheet, parquet, weights, copied, index, database])
def test_a_full_disk_is_an_error_that_names_the_target_and_leaves_nothing_half_written(
    tmp_path: Path, write: Callable[[Path], None]
) -> None:
    out = tmp_path / "place" / "out"
    out.parent.mkdir()
    knowledge_base(tmp_path / "kb.jsonl")
    with full_disk(), pytest.raises(ConfigError, match="Choose another place, or make room") as refused:
        write(out)

    assert str(tempfile.gettempdir() if write is sheet else out) in str(refused.value)
    assert refused.value.__cause__ is not None
    if write is not database:  # SQLite keeps what was committed
        assert [path for path in out.parent.rglob("*") if path.is_file()] == []


@pytest.mark.parametrize(
    ("error", "named"),
    [
        (OSError(errno.ENOSPC, "x"), "out: No space left"),
        (OSError(errno.ENOSPC, "x", "source"), "out: No space left"),
        (OSError(errno.EDQUOT, "x"), "out: Disk quota exceeded"),
        (OSError(errno.EROFS, "x", "/there"), "/there: Read-only file system"),
        (PermissionError(errno.EACCES, "x", "/there"), "/there: Permission denied"),
        (PermissionError(errno.EACCES, "x", "/a\nb\u202e"), "/a\\nb"),
        (OSError("67148 requested and 50176 written"), "out: No space left"),
        (RuntimeError("[enforce fail] . unexpected pos 576 vs 534"), "out: No space left"),
        (RuntimeError("I/O error: No space left on device (os error 28)"), "out: No space left"),
        (sqlite3.OperationalError("database or disk is full"), "out: No space left"),
        (PermissionError(errno.EPERM, "a socket that a policy forbids"), ""),
        (OSError(errno.EMFILE, "Too many open files"), ""),
        (ConnectionResetError(errno.ECONNRESET, "reset"), ""),
        (RuntimeError("8 GPUs requested and 4 found"), ""),
        (OutageError("No space left on device, says the provider"), ""),
    ],
)
def test_only_errors_of_the_disk_are_taken_for_them(error: Exception, named: str) -> None:
    with pytest.raises(Exception) as raised, writing(Path("out")):
        raise error

    if named:
        assert isinstance(raised.value, UnwritableFileError)
        assert str(raised.value).startswith(named)
    else:
        assert raised.value is error
