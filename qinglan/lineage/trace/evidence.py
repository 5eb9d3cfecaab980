"""Unverified evidence for an audit: the statements and bytes in a release, a run or any folder.

evidence = CombinedEvidence([RunFolder(Path("runs/demo/fivedoctors")), FileEvidence(Path("data"))])
"""

import hashlib
import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit

from qinglan.documents import parse_json_mapping
from qinglan.errors import DataError
from qinglan.files.digests import file_digests, tree_digest
from qinglan.files.files import sha256_file
from qinglan.files.plain_files import read_plain
from qinglan.lineage.signing.dsse import ENVELOPE_SUFFIX
from qinglan.lineage.signing.signed_statement import read_signed_statement
from qinglan.lineage.trace.release_folder import LINEAGE, MODEL, PROVENANCE


class EvidenceLocation(NamedTuple):
    """Path at which the bytes with a digest should be."""

    path: Path
    hashed: bool = False
    """True if the path was found by its hash, so that its bytes match."""

    root: Path | None = None
    """Folder of the run or release that contains the path; None for a path elsewhere, from an unsigned record."""


class Evidence:
    """Base class of all evidence. Its own methods return nothing."""

    def statements(self) -> Iterator[tuple[str, bytes]]:
        """Yield each envelope's path and bytes; the same envelope may come more than once."""
        return iter(())

    def newest_steps(self) -> frozenset[str]:
        """Return the ids of the newest step of each stage in a run; empty for other evidence."""
        return frozenset()

    def locations(self, digest: str, name: str) -> Sequence[EvidenceLocation]:
        """Return the locations that may hold the bytes of a digest."""
        return ()

    def papers(self) -> Iterator[tuple[Path, str]]:
        """Yield path and digest of each supporting file, such as prompts, prices and lists of paid answers."""
        return ((path, digest) for digest, paths in self._papers.items() for path in paths)

    def journals(self) -> Sequence[Path]:
        return ()

    @cached_property
    def _papers(self) -> Mapping[str, Sequence[Path]]:
        """Paths of supporting files by digest. A file may have several, since steps copy earlier steps' files."""
        return {}

    def _paper_locations(self, digest: str) -> tuple[EvidenceLocation, ...]:
        return tuple(EvidenceLocation(path, hashed=True) for path in self._papers.get(digest, ())[:1])


class CombinedEvidence(Evidence):
    def __init__(self, parts: Iterable[Evidence]) -> None:
        self.parts = tuple(parts)

    def statements(self) -> Iterator[tuple[str, bytes]]:
        return (statement for part in self.parts for statement in part.statements())

    def newest_steps(self) -> frozenset[str]:
        return frozenset().union(*(part.newest_steps() for part in self.parts))

    def locations(self, digest: str, name: str) -> Sequence[EvidenceLocation]:
        locations = (location for part in self.parts for location in part.locations(digest, name))
        return tuple({location.path: location for location in locations}.values())

    def papers(self) -> Iterator[tuple[Path, str]]:
        return (paper for part in self.parts for paper in part.papers())

    def journals(self) -> Sequence[Path]:
        return tuple(journal for part in self.parts for journal in part.journals())


class FileEvidence(Evidence):
    """Any file or folder as evidence. Its files are hashed once and found by digest; git commits are found too."""

    def __init__(self, path: Path) -> None:
        if not path.exists():
            raise DataError(f"{path}: no such folder. --files names a folder with the external inputs.")
        self.path = path

    def statements(self) -> Iterator[tuple[str, bytes]]:
        return read_statements(self.path)

    def locations(self, digest: str, name: str) -> Sequence[EvidenceLocation]:
        path = self._by_digest.get(digest)
        # A git commit is a SHA-1 of 40 digits; all digests of bytes have 64.
        if len(digest) == 40:
            command = ["git", "-C", str(self.path), "cat-file", "-e", f"{digest}^{{commit}}"]
            with suppress(OSError):  # no git here
                path = self.path if subprocess.run(command, capture_output=True).returncode == 0 else None
        return (EvidenceLocation(path, hashed=True),) if path else ()

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
        by_digest = {tree_digest(inside): self.path / name for name, inside in folders.items()}
        return by_digest | {sha: self.path / name for name, sha in files.items()}


class ReleaseFolder(Evidence):
    """Folder of a release as evidence. Files are found by the digests in its statement, supporting files by hash."""

    def __init__(self, path: Path, absent: frozenset[str] = frozenset()) -> None:
        """Set the folder, and the `absent` files that stayed in the store. With any, the model's folder is absent."""
        self.path, self.absent = path, absent | ({MODEL} if absent else set())

    def statements(self) -> Iterator[tuple[str, bytes]]:
        if (path := self.path / PROVENANCE).is_file():
            yield str(path), read_plain(path)
        yield from read_statements(self.path / LINEAGE)

    def locations(self, digest: str, name: str) -> Sequence[EvidenceLocation]:
        signed = (EvidenceLocation(path, root=self.path) for path in self._signed_paths.get(digest, ()))
        return (*signed, *self._paper_locations(digest))

    @cached_property
    def _papers(self) -> Mapping[str, Sequence[Path]]:
        return supporting_files([self.path / LINEAGE])

    @cached_property
    def _signed_paths(self) -> dict[str, list[Path]]:
        """Paths in this folder by the digest in the release's statement. Paths that lead outside are ignored."""
        try:
            outputs = read_signed_statement(self.path / PROVENANCE).statement.made
        except (OSError, DataError):
            return {}
        paths: dict[str, list[Path]] = {}
        for part in outputs:
            inside = ".." not in Path(part.name).parts and not Path(part.name).is_absolute()
            if inside and part.name not in self.absent:
                paths.setdefault(part.digest, []).append(self.path / part.name)
        return paths


class RunFolder(Evidence):
    """Folder of a run as evidence. Since it may have been moved, recorded paths below artifacts/ are looked up in it.

    Only outputs of this run's steps must exist. An external input, such as the spreadsheet, may be gone.
    """

    def __init__(self, root: Path) -> None:
        self.root = root

    def statements(self) -> Iterator[tuple[str, bytes]]:
        yield from read_statements(self.root / "records")
        yield from read_statements(self.root / "artifacts")

    def newest_steps(self) -> frozenset[str]:
        return frozenset(hashlib.sha256(sealed).hexdigest() for _, sealed in read_statements(self.root / "records"))

    def locations(self, digest: str, name: str) -> Sequence[EvidenceLocation]:
        paths = dict.fromkeys(path for _, recorded, path in self._artifacts if path and recorded == digest)
        recorded = (EvidenceLocation(path, root=self.root if self._is_inside(path) else None) for path in paths)
        released = (location for release in self.releases for location in release.locations(digest, name))
        return (*recorded, *released, *self._paper_locations(digest))

    def journals(self) -> Sequence[Path]:
        journal = self.root / "journal.sqlite"
        return (journal,) if journal.is_file() else ()

    @cached_property
    def records(self) -> dict[str, dict[str, Any]]:
        """Records of the run's steps, by stage. Records are not signed."""
        records = {}
        for path in sorted((self.root / "records").glob("*.json")):
            if path.is_file() and not path.name.endswith(ENVELOPE_SUFFIX):
                with suppress(DataError, OSError):
                    records[path.stem] = parse_json_mapping(read_plain(path), str(path))
        return {stage: record for stage, record in records.items() if record}

    @cached_property
    def releases(self) -> list[ReleaseFolder]:
        return [ReleaseFolder(path.parent) for path in sorted((self.root / "artifacts").rglob(PROVENANCE))]

    def digest_of(self, path: Path, name: str = "") -> str:
        """Return the recorded digest of the artifact at a path; empty if no record of the run names the path.

        With a `name`, only artifacts of that name count.
        """
        artifacts = (item for item in self._artifacts if name in ("", item[0]))
        resolved = path.resolve()
        return next((digest for _, digest, at in artifacts if at and at.resolve() == resolved), "")

    def recorded_digests(self, name: str) -> frozenset[str]:
        return frozenset(digest for artifact, digest, _ in self._artifacts if artifact == name and digest)

    @cached_property
    def _artifacts(self) -> list[tuple[str, str, Path | None]]:
        """Name, digest and path of each artifact in the records. The path is None if it cannot be found."""
        artifacts = []
        for record in self.records.values():
            for kind in ("inputs", "outputs"):
                for name, value in mapping_or_empty(record.get(kind)).items():
                    if part := mapping_or_empty(value):
                        path = self._recorded_path(str(part.get("uri", "")), is_output=kind == "outputs")
                        artifacts.append((name, str(part.get("sha256", "")), path))
        return artifacts

    def _recorded_path(self, uri: str, is_output: bool) -> Path | None:
        if (path := local_path(uri)) is None:
            return None
        # In a run that was moved, the part of a path below artifacts/ holds. The last artifacts/ is tried first.
        parts = path.parts
        ends = [parts[number + 1 :] for number, part in enumerate(parts) if part == "artifacts"]
        moved = [self.root.joinpath("artifacts", *end) for end in reversed(ends) if end and ".." not in end]
        existing = next(filter(_exists, moved), None)
        if existing is None and is_output:
            inside = moved[0] if moved else path
            return inside if self._is_inside(inside) else None
        candidate = existing or path
        return candidate if _exists(candidate) else None

    def _is_inside(self, path: Path) -> bool:
        """Return True if the path, without following links, lies in this run's folder."""
        return ".." not in path.parts and path.absolute().is_relative_to(self.root.absolute())

    @cached_property
    def _papers(self) -> Mapping[str, Sequence[Path]]:
        return supporting_files(sorted((self.root / "artifacts").rglob(LINEAGE)))


def read_statements(folder: Path) -> Iterator[tuple[str, bytes]]:
    """Yield path and bytes of every envelope below a folder, sorted by path; `folder` may also be one envelope."""
    if folder.is_file() and folder.name.endswith(ENVELOPE_SUFFIX):
        yield str(folder), read_plain(folder)
    for path in sorted(folder.rglob(f"*{ENVELOPE_SUFFIX}")):
        if path.is_file():
            yield str(path), read_plain(path)


def mapping_or_empty(value: Any) -> dict[str, Any]:
    """Return the value if it is a mapping, else an empty dict, since unverified files may hold anything."""
    return value if isinstance(value, dict) else {}


def supporting_files(folders: Iterable[Path]) -> dict[str, list[Path]]:
    """Return the files in these folders that are not statements, by digest."""
    files: dict[str, list[Path]] = {}
    for path in (path for folder in folders if folder.is_dir() for path in sorted(folder.iterdir())):
        if path.is_file() and not path.name.endswith(ENVELOPE_SUFFIX):
            files.setdefault(sha256_file(path), []).append(path)
    return files


def local_path(uri: str) -> Path | None:
    """Return the path of a file:// URI or of a plain path; None for any other URI."""
    if uri.startswith("file://"):
        return Path(unquote(urlsplit(uri).path))
    return Path(uri) if uri and "://" not in uri else None


def _exists(path: Path) -> bool:
    """Return True if the path exists; False also if the system refuses the path, for example as too long."""
    try:
        return path.exists()
    except (OSError, ValueError):
        return False
