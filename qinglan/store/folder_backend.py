"""Storage in a folder on this machine. A file appears only when it is complete, and is read-only from then on."""

import hashlib
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from qinglan.errors import ConfigError, DataError
from qinglan.files.digests import file_digests
from qinglan.files.files import is_abandoned, writer_name
from qinglan.files.plain_files import open_plain, read_plain
from qinglan.store.backend import ObjectInfo, SourceFile, checked_key, source_changed_error
from qinglan.terminal.progress import Transfer

READ_ONLY = 0o444
READ_AT_ONCE = 1 << 20
PARTIAL = ".partial"
"""Folder of unfinished files. The next writer removes files that a killed process left there."""


class FolderBackend:
    def __init__(self, root: Path) -> None:
        self._root = root.expanduser().resolve()

    @property
    def address(self) -> str:
        return self._root.as_uri()

    def prepare(self) -> None:
        try:
            self._root.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigError(
                f"{self._root}: no store can be made here ({error.strerror}). Name another place."
            ) from error

    def at(self, key: str) -> Path:
        """Return the path of a key. Raises a ConfigError if the store does not exist."""
        if not self._root.is_dir():
            raise ConfigError(f"{self._root}: there is no store here. Name the folder of a store (--store).")
        return self._root / checked_key(key)

    def read(self, key: str) -> bytes | None:
        try:
            return read_plain(self.at(key))
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            return None

    def part(self, key: str, start: int, size: int) -> bytes:
        try:
            with open_plain(self.at(key)) as file:
                file.seek(start)
                return file.read(size)
        except OSError as error:
            raise DataError(f"{self._root / key}: {error.strerror}. Push the artifact again.") from error

    def create(self, key: str, data: bytes) -> bool:
        target = self.at(key)
        with self._partial() as partial:
            partial.write_bytes(data)
            _sync_read_only(partial)
            target.parent.mkdir(parents=True, exist_ok=True)
            try:
                # link(2) fails if the target exists, unlike rename(2), so only one of two writers wins.
                os.link(partial, target)
            except FileExistsError:
                return False
        return True

    def put(self, key: str, source: SourceFile, tally: Transfer) -> None:
        target = self.at(key)
        with self._partial() as partial:
            sha256 = hashlib.sha256()
            with open_plain(source.path) as file, partial.open("wb") as out:
                while chunk := file.read(READ_AT_ONCE):
                    sha256.update(chunk)
                    out.write(chunk)
                    tally.add_moved(len(chunk))
            if sha256.hexdigest() != source.sha256:
                raise source_changed_error(source)
            # The bytes reach the disk before the name does, so after a power cut the file is complete or missing.
            _sync_read_only(partial)
            target.parent.mkdir(parents=True, exist_ok=True)
            partial.replace(target)

    def children(self, prefix: str, beginning: str = "") -> list[str]:
        folder = self.at(prefix)
        names = (path.name for path in folder.iterdir()) if folder.is_dir() else ()
        return sorted(name for name in names if name.startswith(beginning))

    def objects(self, prefix: str) -> dict[str, ObjectInfo]:
        folder = self.at(prefix)
        return {name: ObjectInfo(sha, (folder / name).stat().st_size) for name, sha in file_digests(folder).items()}

    @contextmanager
    def _partial(self) -> Iterator[Path]:
        """Yield a file to write. It is deleted at the end unless it was renamed."""
        folder = self._root / PARTIAL
        folder.mkdir(parents=True, exist_ok=True)
        for left in folder.iterdir():
            if is_abandoned(left, writer=left.name.partition(".")[0]):
                left.unlink(missing_ok=True)
        handle, path = tempfile.mkstemp(dir=folder, prefix=f"{writer_name()}.")
        os.close(handle)
        try:
            yield Path(path)
        finally:
            Path(path).unlink(missing_ok=True)


def _sync_read_only(file: Path) -> None:
    """Write the file to the disk and make it read-only, before anybody can see it."""
    with open_plain(file) as written:
        os.fsync(written.fileno())
    file.chmod(READ_ONLY)
