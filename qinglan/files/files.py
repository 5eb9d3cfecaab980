"""Writes files and folders atomically: they get their name only when they are complete. Also reads JSON and hashes.

with atomic_write(path) as partial, partial.open("wb") as out: ...
for number, row in read_jsonl(path, Question): ...
"""

import glob
import hashlib
import os
import shutil
import socket
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any, BinaryIO, Literal, TypeVar

import orjson
from pydantic import BaseModel, ValidationError

from qinglan.config import explain_validation_error
from qinglan.documents import parse_json, parse_json_mapping
from qinglan.errors import DataError
from qinglan.files.plain_files import open_plain, plain_handle, read_plain, reading, writing

Row = TypeVar("Row", bound=BaseModel)


READABLE, PRIVATE = 0o644, 0o600
"""Permissions of a new file: readable by all and writable by its owner, or accessible to its owner only. A umask can
only remove permissions."""

ABANDONED_SECONDS = 24 * 3600.0
"""Seconds without a change after which unfinished writes of a process on another host are removed."""


@cache
def pid_space() -> str:
    """Return eight hexadecimal digits that identify a host and its pid namespace; they differ from pod to pod."""
    space = ""
    with suppress(OSError):  # no Linux
        space = str(Path("/proc/self/ns/pid").readlink())
    return sha256_text(socket.gethostname(), space)[:8]


def writer_name() -> str:
    """Return a name for this process that is unique across pods; files and folders are named by it. A pid is not
    enough, because processes in two pods can have the same pid."""
    return f"{pid_space()}-{os.getpid()}"


def is_abandoned(path: Path, writer: str) -> bool:
    """True if `writer`, the process that began to write at `path`, has ended.

    A process of this host or pod is looked up by its pid. A process of another host, as on a volume that pods share,
    cannot be looked up, and not every file system shows the locks of other machines. Such a process counts as ended
    if nothing at `path` has changed for a day.
    """
    space, _, pid = writer.rpartition("-")
    # Pids are unique only within a pid namespace: pods on one volume may all have pid 1.
    if space == pid_space():
        return not Path(f"/proc/{pid}").exists()
    try:
        changed = max(part.lstat().st_mtime for part in (path, *path.rglob("*")))
    except OSError:  # another process writes or removes files there
        return False
    return time.time() - changed > ABANDONED_SECONDS


@contextmanager
def atomic_write(target: Path, durable: bool = True, mode: int = READABLE) -> Iterator[Path]:
    """Yield a path to write to. The file replaces `target` only if the block ends without an error.

    With `durable=False` it does not wait until the disk has the bytes; use that for files that can be created again.
    """
    partial = _beside(target, "partial")
    with writing(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            # O_EXCL does not follow a link that a stranger put at this name, and `mode` holds from the first byte.
            partial.unlink(missing_ok=True)  # left by a killed process with our pid, or a stranger's link
            os.close(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode))
            yield partial
            if durable:
                with partial.open("rb") as written:
                    os.fsync(written.fileno())
            partial.replace(target)
        finally:
            partial.unlink(missing_ok=True)


def write_atomically(target: Path, content: bytes) -> None:
    """Write a file as a whole. At any time, readers find either its old content or its new content."""
    with atomic_write(target) as partial:
        partial.write_bytes(content)


@contextmanager
def atomic_file(target: Path) -> Iterator[BinaryIO]:
    """Yield an open file to write piece by piece. It replaces `target` only if the block ends without an error."""
    with atomic_write(target) as partial, partial.open("wb") as file:
        yield file


def remove_abandoned(target: Path) -> None:
    """Clean up folders that killed processes left beside `target`.

    Folders of a process on this host are cleaned up at once, folders of other pods after a day (is_abandoned).
    Half-written folders are removed. A folder that was moved aside is put back if its replacement is missing.
    """
    partial, aside = _beside(target, "partial"), _beside(target, "before")
    _remove(partial)
    restore_folder(target, aside)
    for left in target.parent.glob(f".{glob.escape(target.name)}.*.partial"):
        if left.is_dir() and is_abandoned(left, writer=left.name.split(".")[-2]):
            with suppress(OSError):  # if its writer still lives, it gets an error instead of a folder without parts
                left.rename(partial)
            _remove(partial)
    for left in target.parent.glob(f".{glob.escape(target.name)}.*.before"):
        if is_abandoned(left, writer=left.name.split(".")[-2]):
            with suppress(FileNotFoundError):  # another process was first
                left.rename(aside)
            restore_folder(target, aside)


@contextmanager
def atomic_folder(target: Path) -> Iterator[Path]:
    """Yield a folder to fill. It replaces `target` only if the block ends without an error.

    Folders that killed processes left beside `target` are removed or put back (remove_abandoned).
    """
    with _new_folder(target, _beside(target, "partial")) as partial:
        yield partial
        replace_folder(partial, target, _beside(target, "before"))


@contextmanager
def first_folder(target: Path) -> Iterator[Path]:
    """Yield a folder to fill, which becomes `target`. If another process creates `target` first, its folder is kept,
    since the content is the same.

    Folders that killed processes left beside `target` are removed or put back (remove_abandoned).
    """
    # Threads of one process may fill the same target, so the writer's name is not enough.
    partial = target.with_name(f".{target.name}.{uuid.uuid4().hex}.{writer_name()}.partial")
    with _new_folder(target, partial):
        yield partial
        try:
            partial.rename(target)
        except OSError:
            # rename(2) fails if the target is a folder with files: another process was first.
            if not target.exists():
                raise


@contextmanager
def _new_folder(target: Path, partial: Path) -> Iterator[Path]:
    with writing(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        remove_abandoned(target)
        partial.mkdir()
        try:
            yield partial
        finally:
            _remove(partial)


def replace_folder(new: Path, target: Path, aside: Path) -> None:
    """Rename `new` to `target`. If `target` exists, it is moved to `aside` first, and deleted at the end.

    rename(2) replaces only an empty folder, so there are two renames. If the process is killed between them,
    restore_folder() moves the old folder back from `aside`.
    """
    try:
        if target.is_dir() and not target.is_symlink():
            with suppress(OSError):  # owned by another user
                os.utime(target)  # is_abandoned() of another pod counts a day from now
            target.rename(aside)
        new.rename(target)
    finally:
        restore_folder(target, aside)


def restore_folder(target: Path, aside: Path) -> None:
    """Move the folder `aside` back if the target is missing; delete it otherwise."""
    if aside.is_dir():
        if os.path.lexists(target):
            shutil.rmtree(aside)
        else:
            aside.rename(target)


def _beside(target: Path, ending: str) -> Path:
    return target.with_name(f".{target.name}.{writer_name()}.{ending}")


def _remove(folder: Path) -> None:
    """Delete a folder if it exists. A failure is raised here, because otherwise the next rename to this name would
    fail without the reason."""
    if os.path.lexists(folder):
        shutil.rmtree(folder)


def make_private(path: Path) -> None:
    """Create a file if it is missing, and let only its owner access it, since it will hold questions, answers and
    addresses.

    A file of another owner, as on a shared volume, is left as it is.
    """
    handle = plain_handle(path, os.O_WRONLY | os.O_CREAT, PRIVATE)
    try:
        if os.fstat(handle).st_mode & 0o077:
            os.fchmod(handle, PRIVATE)
    except PermissionError:
        pass
    finally:
        os.close(handle)


def open_private(path: Path, mode: Literal["wb", "ab"]) -> BinaryIO:
    make_private(path)
    return path.open(mode)


def cache_folder(name: str) -> Path:
    """Return the path of a folder for results that are computed once and reused by all runs."""
    root = os.environ.get("QINGLAN_CACHE") or Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "qinglan"
    return Path(root).expanduser() / name


def sha256_file(path: Path) -> str:
    with open_plain(path) as file, reading(path):
        return hashlib.file_digest(file, "sha256").hexdigest()


def sha256_bytes(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def sha256_text(*parts: str) -> str:
    """Return the SHA-256 of a list of texts. It depends on where each text ends: ("ab", "c") and ("a", "bc")
    differ."""
    return hashlib.sha256(orjson.dumps(parts)).hexdigest()


def count_lines(path: Path) -> int:
    with path.open("rb") as file:
        return sum(1 for _ in file)


def dump_line(row: BaseModel) -> bytes:
    return orjson.dumps(row.model_dump(mode="json")) + b"\n"


def read_json_mapping(path: Path, next_step: str) -> dict[str, Any]:
    """Read a plain file that must hold a JSON object. If that fails, a DataError ends with `next_step`."""
    try:
        return parse_json_mapping(read_plain(path), path.name)
    except (OSError, DataError) as error:
        cause = error.strerror if isinstance(error, OSError) else error
        raise DataError(f"{path}: cannot be read ({cause}). {next_step}") from error


def read_jsonl(path: Path, model: type[Row]) -> Iterator[tuple[int, Row]]:
    """Yield each row of a JSONL file with its line number. A DataError names the first bad line and its fault."""
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
            values = parse_json(text, str(path), number)  # pydantic would take the last of two equal keys
            try:
                yield number, model.model_validate(values)
            except ValidationError as error:
                raise DataError(f"{path}:{number}: {explain_validation_error(error)}") from error
