"""Objects in JSON files with versions, as in the API server: an object is replaced only at the version that was read.

service = ObjectFiles(folder).read("service")
ObjectFiles(folder).replace("service", {**service, "spec": ...})     # ConflictError after another writer
"""

import fcntl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import orjson

from qinglan.errors import ConflictError, DataError, OutageError
from qinglan.files.files import atomic_write
from qinglan.files.plain_files import open_lock

Object = dict[str, Any]


class ObjectFiles:
    """Objects of one folder, by name."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def names(self) -> list[str]:
        return sorted(path.stem for path in self.folder.glob("*.json"))

    def read(self, name: str) -> Object:
        """Read an object. Its version is in `metadata.resourceVersion`."""
        path = self._path(name)
        try:
            content: Object = orjson.loads(path.read_bytes())
        except (FileNotFoundError, NotADirectoryError) as error:
            raise DataError(f"{path}: no such file. Deploy something there first.") from error
        except OSError as error:
            raise OutageError(f"{path}: cannot be read ({error.strerror}).") from error
        except orjson.JSONDecodeError as error:
            raise DataError(f"{path}: not an object of this store ({error}). Restore it.") from error
        return content

    def create(self, name: str, content: Mapping[str, Any]) -> bool:
        """Create an object. Returns False if the name is taken."""
        with self._locked(name):
            if self._path(name).exists():
                return False
            self._write(name, content, 1)
        return True

    def replace(self, name: str, content: Mapping[str, Any]) -> None:
        """Replace an object. Raises a ConflictError if the object is no longer at the version of `content`."""
        expected = str(content["metadata"]["resourceVersion"])
        with self._locked(name):
            now = str(self.read(name)["metadata"]["resourceVersion"])
            if now != expected:
                raise ConflictError(
                    f"{self._path(name)}: is at version {now}, not {expected} as it was read. Read again."
                )
            self._write(name, content, int(now) + 1)

    def _write(self, name: str, content: Mapping[str, Any], version: int) -> None:
        whole = {**content, "metadata": {**content["metadata"], "resourceVersion": str(version)}}
        with atomic_write(self._path(name)) as partial:
            partial.write_bytes(orjson.dumps(whole, option=orjson.OPT_INDENT_2))

    @contextmanager
    def _locked(self, name: str) -> Iterator[None]:
        """Lock an object by its name; the kernel releases the lock if this process dies."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with open_lock(self.folder / f".{name}.lock") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                yield
        except OSError as error:
            raise OutageError(f"{self._path(name)}: cannot be written ({error.strerror}).") from error

    def _path(self, name: str) -> Path:
        return self.folder / f"{name}.json"
