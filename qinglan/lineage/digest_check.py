"""The bytes at hand, compared with the digests that they ought to have: each place is hashed once."""

import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from qinglan.digests import digest as digest_of
from qinglan.lineage.evidence import Evidence, EvidenceLocation
from qinglan.lineage.findings import State
from qinglan.terminal.progress import step_progress

MEGABYTE = 1 << 20
ORDER: tuple[State, ...] = ("altered", "verified", "missing")
"""Altered in any place is altered; a copy that is right makes up for one that is gone."""


class DigestCheck(NamedTuple):
    """The state of one digest's bytes."""

    state: State
    """verified, altered or missing."""

    where: str
    size: int | None = None
    why: str = ""


class HashedPath(NamedTuple):
    digest: str
    size: int


def check_digests(names: Mapping[str, str], evidence: Evidence) -> dict[str, DigestCheck]:
    """The state of these digests' bytes, by `names`; a digest of which no place is known is left out."""
    places = {digest: evidence.places(digest, name) for digest, name in names.items()}
    unknown = {place.path for candidates in places.values() for place in candidates if not place.hashed}
    hashes = hash_paths(sorted(path for path in unknown if path.exists()))
    return {
        digest: min((check_location(digest, place, hashes) for place in candidates), key=_gravity)
        for digest, candidates in places.items()
        if candidates
    }


def _gravity(check: DigestCheck) -> int:
    return ORDER.index(check.state)


def check_location(digest: str, place: EvidenceLocation, hashes: Mapping[Path, HashedPath]) -> DigestCheck:
    where = str(place.path)
    if place.hashed:
        return DigestCheck("verified", where, place.path.stat().st_size if place.path.is_file() else None)
    hashed = hashes.get(place.path)
    if hashed is None:
        return DigestCheck("missing", where, None, f"a record says that it is at {where}, and it is not")
    if odd := _special_file(place.path):
        return DigestCheck("altered", where, hashed.size, f"{odd}: a link or a device, where files belong")
    if hashed.digest != digest:
        why = f"the bytes at {where} have digest {hashed.digest[:12]}, not {digest[:12]}"
        return DigestCheck("altered", where, hashed.size, why)
    return DigestCheck("verified", where, hashed.size)


def hash_paths(paths: Iterable[Path]) -> dict[Path, HashedPath]:
    """Digest and size of each file or folder, with a line of progress on a terminal."""
    sizes = {path: _size(path) for path in paths}
    hashes, done, total = {}, 0, sum(sizes.values())
    with step_progress("hashing") as show:
        for path, size in sizes.items():
            if sys.stdout.isatty() and total > 256 * MEGABYTE:
                show(done // MEGABYTE, total // MEGABYTE, f"MB, {path.name}")
            hashes[path] = HashedPath(digest_of(path), size)
            done += size
    return hashes


def _size(path: Path) -> int:
    files = path.rglob("*") if path.is_dir() else [path]
    return sum(file.stat().st_size for file in files if file.is_file())


def _special_file(path: Path) -> Path | None:
    """Something in a folder that is neither a file nor a folder: the folder's digest does not cover it."""
    inside = path.rglob("*") if path.is_dir() else ()
    return next((file for file in inside if file.is_symlink() or not (file.is_file() or file.is_dir())), None)
