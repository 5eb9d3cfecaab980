"""Files that are whole or not there: written beside their target, then renamed. JSONL is the typed truth.

with atomic_write(path) as partial, partial.open("wb") as out: ...
for number, row in read_jsonl(path, Question): ...
"""

import hashlib
import os
import shutil
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import BinaryIO, Literal, TypeVar

import orjson
from pydantic import BaseModel, ValidationError

from qinglan.config import explain_validation_error
from qinglan.documents import parse_json
from qinglan.errors import DataError
from qinglan.plain_files import open_plain, reading

Row = TypeVar("Row", bound=BaseModel)


READABLE, PRIVATE = 0o644, 0o600
"""Modes of a file: never writable by others, whatever the umask; or for its owner alone."""

ABANDONED_SECONDS = 24 * 3600.0
"""Age from which what another host began to write, and has not changed since, is removed."""


@cache
def pid_space() -> str:
    """Eight digits for the host and the processes on it that see each other's pids: each pod has others."""
    space = ""
    with suppress(OSError):  # no Linux
        space = str(Path("/proc/self/ns/pid").readlink())
    return sha256_text(socket.gethostname(), space)[:8]


def writer_name() -> str:
    """This process in the name of what it writes: another pod's process may have the same pid."""
    return f"{pid_space()}-{os.getpid()}"


def is_abandoned(path: Path, writer: str) -> bool:
    """True if the process that began to write here has ended.

    A process of this host or pod is looked up by its pid. Of another's, as on a volume that pods share, nothing can
    be looked up, and not every file system shows the locks of other machines: it counts as ended where nothing at
    this path has changed for a day.
    """
    space, _, pid = writer.rpartition("-")
    if space == pid_space():
        return not Path(f"/proc/{pid}").exists()
    try:
        changed = max(part.lstat().st_mtime for part in (path, *path.rglob("*")))
    except OSError:  # somebody is at work there
        return False
    return time.time() - changed > ABANDONED_SECONDS


@contextmanager
def atomic_write(target: Path, durable: bool = True, mode: int = READABLE) -> Iterator[Path]:
    """A path to write to that becomes `target` only if the block ends well.

    Without `durable` it does not wait for the disk: for a file that can be made anew.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = target.with_name(f".{target.name}.{writer_name()}.partial")
    try:
        os.close(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, mode))
        yield partial
        if durable:
            with partial.open("rb") as written:
                os.fsync(written.fileno())
        partial.replace(target)
    finally:
        partial.unlink(missing_ok=True)


def remove_abandoned(target: Path) -> None:
    """Remove the partial folders of a target that killed processes left: of this host at once, of other pods after a
    day (is_abandoned)."""
    partial = target.with_name(f".{target.name}.{writer_name()}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    for left in target.parent.glob(f".{target.name}.*.partial"):
        if left.is_dir() and is_abandoned(left, writer=left.name.split(".")[-2]):
            with suppress(OSError):  # at once: who writes there after all gets an error, and no folder without parts
                left.rename(partial)
            shutil.rmtree(partial, ignore_errors=True)


@contextmanager
def atomic_folder(target: Path) -> Iterator[Path]:
    """A folder to fill that becomes `target`, in place of what was there, only if the block ends well.

    What killed processes left beside it is removed.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    remove_abandoned(target)
    partial = target.with_name(f".{target.name}.{writer_name()}.partial")
    partial.mkdir()
    try:
        yield partial
        shutil.rmtree(target, ignore_errors=True)
        partial.rename(target)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def make_private(path: Path) -> None:
    """Make the file, or find it, and let its owner alone read it: questions, answers and addresses go into it.

    A file of another owner, as on a shared volume, is left as it is.
    """
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, PRIVATE)
    try:
        if os.fstat(handle).st_mode & 0o077:
            os.fchmod(handle, PRIVATE)
    except PermissionError:
        pass
    finally:
        os.close(handle)


def open_private(path: Path, mode: Literal["wb", "ab"]) -> BinaryIO:
    """Open a file, such as a log, that its owner alone reads."""
    make_private(path)
    return path.open(mode)


def cache_folder(name: str) -> Path:
    """A folder, outside of any run, for results that are computed once."""
    root = os.environ.get("QINGLAN_CACHE") or Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "qinglan"
    return Path(root).expanduser() / name


def sha256_file(path: Path) -> str:
    with open_plain(path) as file, reading(path):
        return hashlib.file_digest(file, "sha256").hexdigest()


def sha256_bytes(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def sha256_text(*parts: str) -> str:
    """A digest of several texts that no other list of texts shares."""
    return hashlib.sha256(orjson.dumps(parts)).hexdigest()


def count_lines(path: Path) -> int:
    with path.open("rb") as file:
        return sum(1 for _ in file)


def dump_line(row: BaseModel) -> bytes:
    return orjson.dumps(row.model_dump(mode="json")) + b"\n"


def read_jsonl(path: Path, model: type[Row]) -> Iterator[tuple[int, Row]]:
    """Rows with their line numbers, one at a time; a bad line is a DataError that says which and why."""
    try:
        file = open_plain(path)
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror}). Run the stage that writes it first.") from error
    with file:
        for number, line in enumerate(file, 1):
            if not line.strip():
                continue
            try:
                text = line.decode("utf-8-sig" if number == 1 else "utf-8")
            except UnicodeDecodeError as error:
                raise DataError(
                    f"{path}:{number}: byte {error.start} is not UTF-8. Save the file as UTF-8 and try again."
                ) from error
            values = parse_json(text, str(path), number)  # pydantic takes the last of two equal keys without a word
            try:
                yield number, model.model_validate(values)
            except ValidationError as error:
                raise DataError(f"{path}:{number}: {explain_validation_error(error)}") from error
