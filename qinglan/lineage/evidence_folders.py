"""Where an audit looks: a release, a run, any folder. Nothing found here is believed: the walk verifies it."""

from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import orjson

from qinglan.errors import DataError
from qinglan.lineage.dsse import open_envelope
from qinglan.lineage.evidence_source import (
    CombinedEvidence,
    Evidence,
    EvidenceLocation,
    FileEvidence,
    NoEvidence,
    local_path,
    mapping_or_empty,
    read_statements,
    supporting_files,
)
from qinglan.lineage.release_folder import LINEAGE, MODEL, PROVENANCE
from qinglan.lineage.statement import from_payload

__all__ = [
    "CombinedEvidence",
    "Evidence",
    "EvidenceLocation",
    "FileEvidence",
    "NoEvidence",
    "ReleaseFolder",
    "RunFolder",
]


class ReleaseFolder(NoEvidence):
    """A release: its own statement claims its files, and the lineage folder's papers are found by digest."""

    def __init__(self, path: Path, absent: frozenset[str] = frozenset()) -> None:
        self.path, self.absent = path, absent | ({MODEL} if absent else set())
        """Files that stayed in the store; without them the model's folder is not that of its digest either."""

    def statements(self) -> Iterator[tuple[str, bytes]]:
        if (own := self.path / PROVENANCE).is_file():
            yield str(own), own.read_bytes()
        yield from read_statements(self.path / LINEAGE)

    def places(self, digest: str, name: str) -> Sequence[EvidenceLocation]:
        own = tuple(EvidenceLocation(path, True) for path in self._claims.get(digest, ()))
        paper = self._papers.get(digest)
        return (*own, EvidenceLocation(paper, False, True)) if paper else own

    def papers(self) -> Iterator[tuple[Path, str]]:
        return ((path, digest) for digest, path in self._papers.items())

    @cached_property
    def _papers(self) -> dict[str, Path]:
        return supporting_files(self.path / LINEAGE)

    @cached_property
    def _claims(self) -> dict[str, list[Path]]:
        """What the release's statement says it made, in this very folder."""
        try:
            sealed = (self.path / PROVENANCE).read_bytes()
            made = from_payload(open_envelope(sealed).payload).made
        except (OSError, DataError):
            return {}
        claims: dict[str, list[Path]] = {}
        for part in made:
            inside = ".." not in Path(part.name).parts and not Path(part.name).is_absolute()
            if inside and part.name not in self.absent:
                claims.setdefault(part.digest, []).append(self.path / part.name)
        return claims


class RunFolder(NoEvidence):
    """A run, also one that was copied or moved: what its records put below artifacts/ is looked for in its own.

    Only what a step of this run made must be there. An input from outside, such as the spreadsheet, may be gone.
    """

    def __init__(self, root: Path) -> None:
        self.root = root

    def statements(self) -> Iterator[tuple[str, bytes]]:
        yield from read_statements(self.root / "records")
        yield from read_statements(self.root / "artifacts")

    def places(self, digest: str, name: str) -> Sequence[EvidenceLocation]:
        own = self._claims.get(digest, ())
        inside = (place for release in self.releases for place in release.places(digest, name))
        paper = self._papers.get(digest)
        return (*own, *inside, *([EvidenceLocation(paper, False, True)] if paper else ()))

    def papers(self) -> Iterator[tuple[Path, str]]:
        return ((path, digest) for digest, path in self._papers.items())

    def journals(self) -> Sequence[Path]:
        journal = self.root / "journal.sqlite"
        return (journal,) if journal.is_file() else ()

    @cached_property
    def records(self) -> dict[str, dict[str, Any]]:
        """Each step's, by stage; nobody signed them: they only say where to look."""
        return {
            path.stem: found
            for path in sorted((self.root / "records").glob("*.json"))
            if path.is_file() and (found := _json(path))
        }

    @cached_property
    def releases(self) -> list[ReleaseFolder]:
        return [ReleaseFolder(path.parent) for path in sorted((self.root / "artifacts").rglob(PROVENANCE))]

    def digest_of(self, path: Path) -> str:
        """What the records say is there; "" where they do not know the place."""
        wanted = path.resolve()
        found = (digest for digest, places in self._claims.items() if any(_same(one, wanted) for one in places))
        return next(found, "")

    @cached_property
    def _claims(self) -> dict[str, tuple[EvidenceLocation, ...]]:
        claims: dict[str, dict[Path, EvidenceLocation]] = {}
        for record in self.records.values():
            for kind in ("inputs", "outputs"):
                for part in mapping_or_empty(record.get(kind)).values():
                    digest, uri = (
                        str(mapping_or_empty(part).get("sha256", "")),
                        str(mapping_or_empty(part).get("uri", "")),
                    )
                    if place := self._place(uri, made=kind == "outputs"):
                        claims.setdefault(digest, {}).setdefault(place.path, place)
        return {digest: tuple(places.values()) for digest, places in claims.items()}

    def _place(self, uri: str, made: bool) -> EvidenceLocation | None:
        path = local_path(uri)
        if path is None:
            return None
        moved = [self.root / "artifacts" / rest for rest in _below_artifacts(path)]
        here = next((one for one in moved if one.exists()), None)
        if here is None and made:
            return EvidenceLocation(moved[0] if moved else path, True)
        here = here or path
        return EvidenceLocation(here, True) if here.exists() else None

    @cached_property
    def _papers(self) -> dict[str, Path]:
        found: dict[str, Path] = {}
        for folder in sorted((self.root / "artifacts").rglob(LINEAGE)):
            if folder.is_dir():
                found.update(supporting_files(folder))
        return found


def _below_artifacts(path: Path) -> list[str]:
    """The path inside of a run's artifacts/, the likeliest run first."""
    parts = path.parts
    at = [number for number, part in enumerate(parts) if part == "artifacts" and number + 1 < len(parts)]
    return ["/".join(parts[number + 1 :]) for number in reversed(at) if ".." not in parts[number + 1 :]]


def _same(place: EvidenceLocation, wanted: Path) -> bool:
    return place.path.resolve() == wanted


def _json(path: Path) -> dict[str, Any]:
    try:
        return mapping_or_empty(orjson.loads(path.read_bytes()))
    except orjson.JSONDecodeError:
        return {}
