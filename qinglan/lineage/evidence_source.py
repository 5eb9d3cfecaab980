"""What evidence is: statements and bytes, found and not yet believed; the walk verifies them.

evidence = Combined([RunFolder(Path("runs/demo/fivedoctors")), Files(Path("data"))])
"""

import gc
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, Protocol
from urllib.parse import unquote, urlsplit

from qinglan.digests import file_digests, tree_digest
from qinglan.errors import DataError
from qinglan.files import sha256_file
from qinglan.lineage.dsse import ENVELOPE_SUFFIX


class EvidenceLocation(NamedTuple):
    """Where something's bytes are, or ought to be."""

    path: Path
    claimed: bool
    """A record says that they are there: then they have to be, and to be right."""

    known: bool = False
    """Looked up by digest: hashed already."""


class Evidence(Protocol):
    def statements(self) -> Iterator[tuple[str, bytes]]:
        """Where each lies, and its envelope; the same one may come more than once."""
        ...

    def places(self, digest: str, name: str) -> Sequence[EvidenceLocation]:
        """Where these bytes may be."""
        ...

    def papers(self) -> Iterator[tuple[Path, str]]:
        """The small files that lie beside statements, with their digests."""
        ...

    def journals(self) -> Sequence[Path]:
        """Journals of paid answers."""
        ...


class NoEvidence:
    """No statement, no bytes: what other evidence begins with."""

    def statements(self) -> Iterator[tuple[str, bytes]]:
        return iter(())

    def places(self, digest: str, name: str) -> Sequence[EvidenceLocation]:
        return ()

    def papers(self) -> Iterator[tuple[Path, str]]:
        return iter(())

    def journals(self) -> Sequence[Path]:
        return ()


class CombinedEvidence(NoEvidence):
    """All of these."""

    def __init__(self, parts: Iterable[Evidence]) -> None:
        self.parts = tuple(parts)

    def statements(self) -> Iterator[tuple[str, bytes]]:
        return (one for part in self.parts for one in part.statements())

    def places(self, digest: str, name: str) -> Sequence[EvidenceLocation]:
        found = (place for part in self.parts for place in part.places(digest, name))
        return tuple({place.path: place for place in found}.values())

    def papers(self) -> Iterator[tuple[Path, str]]:
        return (one for part in self.parts for one in part.papers())

    def journals(self) -> Sequence[Path]:
        return tuple(one for part in self.parts for one in part.journals())


class FileEvidence(NoEvidence):
    """Any folder, or file: what lies below is known by its digest, hashed once; of a git repository, its commits."""

    def __init__(self, path: Path) -> None:
        if not path.exists():
            raise DataError(f"{path}: no such folder. --files names where an auditor keeps what was given.")
        self.path = path

    def statements(self) -> Iterator[tuple[str, bytes]]:
        return read_statements(self.path)

    def places(self, digest: str, name: str) -> Sequence[EvidenceLocation]:
        if len(digest) == 40:
            return (EvidenceLocation(self.path, False, True),) if has_commit(self.path, digest) else ()
        found = self._by_digest.get(digest)
        return (EvidenceLocation(found, False, True),) if found else ()

    @cached_property
    def _by_digest(self) -> dict[str, Path]:
        if self.path.is_file():
            return {sha256_file(self.path): self.path}
        files = file_digests(self.path)
        folders: dict[str, dict[str, str]] = {".": files}
        for name, sha in files.items():
            parts = name.split("/")
            for end in range(1, len(parts)):
                folders.setdefault("/".join(parts[:end]), {})["/".join(parts[end:])] = sha
        found = {tree_digest(inside): self.path / name for name, inside in folders.items()}
        return found | {sha: self.path / name for name, sha in files.items()}


def read_statements(folder: Path) -> Iterator[tuple[str, bytes]]:
    """Every envelope below a folder, in the order of names; or the one that a path names."""
    if folder.is_file() and folder.name.endswith(ENVELOPE_SUFFIX):
        yield str(folder), folder.read_bytes()
    for path in sorted(folder.rglob(f"*{ENVELOPE_SUFFIX}")):
        if path.is_file():
            yield str(path), path.read_bytes()


def record_paths(folder: Path) -> list[Path]:
    """The steps' records in a run's folder of them; the statements beside them are others' matter."""
    return [
        path for path in sorted(folder.glob("*.json")) if path.is_file() and not path.name.endswith(ENVELOPE_SUFFIX)
    ]


def mapping_or_empty(found: Any) -> dict[str, Any]:
    """What somebody else may have written: where no mapping stands, an empty one."""
    return found if isinstance(found, dict) else {}


@contextmanager
def garbage_collection_paused() -> Iterator[None]:
    """Python looks for garbage again and again while objects are made that all stay: twice the time for nothing."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


def supporting_files(folder: Path) -> dict[str, Path]:
    """The files beside the statements, by digest."""
    there = sorted(folder.iterdir()) if folder.is_dir() else []
    return {sha256_file(path): path for path in there if path.is_file() and not path.name.endswith(ENVELOPE_SUFFIX)}


def local_path(uri: str) -> Path | None:
    """Where it is on this machine; None for what is elsewhere."""
    if uri.startswith("file://"):
        return Path(unquote(urlsplit(uri).path))
    return Path(uri) if uri and "://" not in uri else None


def has_commit(repository: Path, commit: str) -> bool:
    command = ["git", "-C", str(repository), "cat-file", "-e", f"{commit}^{{commit}}"]
    try:
        return subprocess.run(command, capture_output=True).returncode == 0
    except OSError:
        return False
