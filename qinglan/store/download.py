"""Download an artifact into a folder: several files and pieces at once, and each byte is checked.

Files are collected in a folder beside the target, which replaces the target once it is complete. After an
interrupted pull, the next pull starts from the beginning. Two threads must not pull to one target at once.
"""

import hashlib
from collections.abc import Iterator
from pathlib import Path

from qinglan.errors import ConfigError, DataError, QinglanError
from qinglan.files.files import atomic_folder
from qinglan.store.backend import MIN_PART_SIZE, StorageBackend
from qinglan.store.manifest import Manifest, ManifestFile
from qinglan.store.parallel import map_in_order, run_each
from qinglan.terminal.progress import Transfer, transfer_progress

PIECE_SIZE = 8 << 20
LARGE_AT_ONCE = 2
"""Number of large files at a time. While one file is hashed and written, pieces of the other are downloaded."""


def pull_files(backend: StorageBackend, base: str, manifest: Manifest, into: Path) -> None:
    """Download small files, several at once, and then large files, each in several pieces at once."""
    sizes = {name: file.size for name, file in manifest.files.items()}
    try:
        with atomic_folder(into) as folder, transfer_progress("pull", sum(sizes.values())) as tally:

            def pull(name: str) -> None:
                _fetch_file(backend, f"{base}/{name}", folder / name, manifest.files[name], tally)

            run_each(pull, [name for name, size in sizes.items() if size <= MIN_PART_SIZE])
            run_each(pull, [name for name, size in sizes.items() if size > MIN_PART_SIZE], LARGE_AT_ONCE)
    except QinglanError:
        raise
    except OSError as error:
        raise ConfigError(f"{error.filename or into}: {error.strerror}. See to that and pull again.") from error


def _fetch_file(backend: StorageBackend, key: str, target: Path, file: ManifestFile, tally: Transfer) -> None:
    sha256, size = hashlib.sha256(), 0
    target.parent.mkdir(parents=True, exist_ok=True)
    with target.open("xb") as out:
        # One byte more than the manifest says is requested, so that a longer object is noticed.
        for data in _pieces(backend, key, file.size + 1):
            out.write(data)
            sha256.update(data)
            size += len(data)
            tally.add_moved(len(data))
            if len(data) < PIECE_SIZE:  # the object's end, even if the manifest gives another size
                break
    if size != file.size or sha256.hexdigest() != file.sha256:
        raise DataError(
            f"{backend.address}/{key}: not the bytes that were pushed. Nothing of this artifact was kept."
        )


def _pieces(backend: StorageBackend, key: str, size: int) -> Iterator[bytes]:
    """Yield an object's first `size` bytes in order; several pieces are fetched at once."""
    if size <= PIECE_SIZE:
        return iter([backend.part(key, 0, size)])
    # While one piece is hashed and written, the next pieces are on their way.
    starts = range(0, size, PIECE_SIZE)
    return map_in_order(lambda start: backend.part(key, start, min(PIECE_SIZE, size - start)), starts)
