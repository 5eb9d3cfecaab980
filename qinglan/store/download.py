"""Download an artifact into a folder: several pieces at once, each byte checked; an interrupted pull continues.

Files are collected in a staging folder beside the target. Its name holds the digest, and it replaces the target once
it is complete. If a pull is killed or the store fails, the next pull continues in this folder. If bytes are wrong,
the folder is deleted.
"""

import fcntl
import glob
import hashlib
import os
import shutil
import stat
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath
from typing import BinaryIO

from qinglan.errors import ConfigError, DataError
from qinglan.files.files import replace_folder, restore_folder
from qinglan.files.plain_files import open_lock, own_handle
from qinglan.store.backend import MIN_PART_SIZE, StorageBackend
from qinglan.store.manifest import Manifest, ManifestFile
from qinglan.store.parallel import map_in_order, run_each
from qinglan.terminal.progress import Transfer, transfer_progress

STAGING_SUFFIX = ".pulling"
FILES = "files"
READ_AT_ONCE = 1 << 20
PIECE_SIZE = 8 << 20
LARGE_AT_ONCE = 2
"""Number of large files at once. While one is hashed and written, pieces of the other are fetched."""


def pull_files(shelf: StorageBackend, base: str, manifest: Manifest, into: Path) -> None:
    """Download small files, several at once, and then large files, each in several pieces at once."""
    sizes = {name: file.size for name, file in manifest.files.items()}
    with staging_folder(into, manifest.digest) as folder, transfer_progress("pull", sum(sizes.values())) as tally:
        _discard_foreign(folder, manifest.files)

        def pull(name: str) -> None:
            fetch_file(shelf, f"{base}/{name}", folder / name, manifest.files[name], tally)

        run_each(pull, [name for name, size in sizes.items() if size <= MIN_PART_SIZE])
        run_each(pull, [name for name, size in sizes.items() if size > MIN_PART_SIZE], LARGE_AT_ONCE)


@contextmanager
def staging_folder(target: Path, digest: str) -> Iterator[Path]:
    """Yield a folder to fill, which replaces `target` if the block succeeds. It may be filled in part already."""
    staging = target.with_name(f".{target.name}.{digest[:16]}{STAGING_SUFFIX}")
    files, before = staging / FILES, staging / "before"
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        _remove_stale_pulls(target, staging)
        with _locked(staging, wait=True):
            try:
                restore_folder(target, before)
                if files.is_symlink():
                    files.unlink()
                files.mkdir(exist_ok=True)
                yield files
                replace_folder(files, target, before)
                shutil.rmtree(staging)
            except DataError:
                shutil.rmtree(staging)
                raise
    except OSError as error:
        rest = f": what came is kept in {staging}" if staging.exists() else ""
        raise ConfigError(
            f"{error.filename or staging}: {error.strerror}. See to that and pull again{rest}."
        ) from error


def _remove_stale_pulls(target: Path, staging: Path) -> None:
    """Remove the staging folders of other artifacts' pulls to the same target, unless these pulls still run."""
    for left in target.parent.glob(f".{glob.escape(target.name)}.*{STAGING_SUFFIX}"):
        if left != staging:
            with suppress(BlockingIOError), _locked(left, wait=False):
                restore_folder(target, left / "before")
                shutil.rmtree(left)


def _discard_foreign(folder: Path, names: Collection[str]) -> None:
    """Empty the folder if it holds anything that an earlier pull of these files cannot have left.

    An attacker may have put files there that the artifact does not have, or links. Through a link this pull would
    write elsewhere, or the link's target could change after the folder is published.
    """
    folders = {str(parent) for name in names for parent in PurePosixPath(name).parents}
    for path in folder.rglob("*"):
        about, name = path.lstat(), path.relative_to(folder).as_posix()
        file = stat.S_ISREG(about.st_mode) and about.st_nlink == 1 and name in names
        if not file and not (stat.S_ISDIR(about.st_mode) and name in folders):
            shutil.rmtree(folder)
            folder.mkdir()
            return


def _make_staging(folder: Path) -> None:
    """Make the folder for its owner only. An existing folder is refused if another user could have filled it."""
    try:
        folder.mkdir(mode=0o700)
    except FileExistsError as error:
        about = folder.lstat()
        if not stat.S_ISDIR(about.st_mode) or about.st_uid != os.geteuid() or about.st_mode & 0o022:
            raise ConfigError(
                f"{folder}: an unfinished pull of another user, or others can write to it. Remove it and pull again."
            ) from error


@contextmanager
def _locked(folder: Path, wait: bool) -> Iterator[None]:
    """Hold the folder's lock; a BlockingIOError if another process has it and `wait` is False."""
    path = folder / "lock"
    while True:
        _make_staging(folder)
        try:
            lock = open_lock(path)
        except FileNotFoundError:  # the pull that had the lock has just removed the folder
            continue
        with lock:
            fcntl.flock(lock, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
            # While this process waited, the lock file may have been removed and made again. Then the lock that this
            # process holds protects nothing.
            if path.exists() and os.path.samestat(os.fstat(lock.fileno()), path.stat()):
                yield
                return


def fetch_file(shelf: StorageBackend, key: str, target: Path, file: ManifestFile, tally: Transfer) -> None:
    """Fetch one file. An existing beginning is continued; if the whole is wrong then, the file is fetched again."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with os.fdopen(own_handle(target, os.O_RDWR | os.O_CREAT | os.O_APPEND), "ab+") as out:
        begun = out.seek(0, os.SEEK_END)
        right = _complete_file(shelf, key, out, file, tally)
        if begun and not right:
            tally.add_existing(-begun)
            tally.add_moved(begun - out.tell())
            out.truncate(0)
            right = _complete_file(shelf, key, out, file, tally)
    if not right:
        raise DataError(f"{shelf.address}/{key}: not the bytes that were pushed. Nothing of this artifact was kept.")


def _complete_file(shelf: StorageBackend, key: str, out: BinaryIO, file: ManifestFile, tally: Transfer) -> bool:
    """Fetch the missing rest of a file; True if the whole file is right. It stops as soon as the file is too long."""
    sha256 = hashlib.sha256()
    out.seek(0)
    while chunk := out.read(READ_AT_ONCE):
        sha256.update(chunk)
    tally.add_existing(begun := out.tell())
    if begun == file.size and sha256.hexdigest() == file.sha256 and begun:
        return True
    # One byte more than the manifest says is requested, so that a longer object is noticed.
    for data in _pieces(shelf, key, begun, file.size + 1):
        out.write(data)
        sha256.update(data)
        tally.add_moved(len(data))
        if len(data) < PIECE_SIZE:  # the object's end, even if the manifest gives another size
            break
    return out.tell() == file.size and sha256.hexdigest() == file.sha256


def _pieces(shelf: StorageBackend, key: str, start: int, end: int) -> Iterator[bytes]:
    """Yield an object's bytes from `start` to `end` in order; several pieces are fetched at once."""
    if 0 < end - start <= PIECE_SIZE:
        return iter([shelf.part(key, start, end - start)])
    starts = range(start, end, PIECE_SIZE)
    return map_in_order(lambda at: shelf.part(key, at, min(PIECE_SIZE, end - at)), starts)
