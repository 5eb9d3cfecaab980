"""Bytes at hand, compared with the digests that they ought to have: each place hashed once."""

import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from qinglan.digests import tree_digest
from qinglan.files import sha256_file
from qinglan.lineage.evidence_source import Evidence, EvidenceLocation
from qinglan.lineage.findings import State
from qinglan.terminal.progress import step_progress

MEGABYTE = 1 << 20
TOGETHER = min(4, os.cpu_count() or 1)


class DigestCheck(NamedTuple):
    """What was seen of one digest's bytes."""

    state: State
    """verified, altered or missing."""

    where: str
    size: int | None = None
    why: str = ""


def check_digests(wanted: Mapping[str, str], evidence: Evidence) -> dict[str, DigestCheck]:
    """What is at hand of these digests, by name; what no place is known of is not in the answer."""
    places = {digest: found for digest, name in wanted.items() if (found := evidence.places(digest, name))}
    unknown = {place.path for found in places.values() for place in found if not place.known}
    digests, sizes = hash_paths(sorted(path for path in unknown if path.exists()))
    return {
        digest: one
        for digest, found in places.items()
        if (one := _worst(digest, [check_location(digest, place, digests, sizes) for place in found]))
    }


def check_location(
    digest: str, place: EvidenceLocation, digests: Mapping[Path, str], sizes: Mapping[Path, int]
) -> DigestCheck | None:
    """One place; None where nobody has promised that the bytes are there, and they are not."""
    where = str(place.path)
    if place.known:
        return DigestCheck("verified", where, place.path.stat().st_size if place.path.is_file() else None)
    found = digests.get(place.path)
    if found is None:
        return DigestCheck("missing", where, None, f"a record says that it is at {where}, and it is not")
    if odd := _special_file(place.path):
        return DigestCheck("altered", where, sizes[place.path], f"{odd}: a link or a device, where files belong")
    if found != digest:
        why = f"the bytes at {where} have digest {found[:12]}, not {digest[:12]}"
        return DigestCheck("altered", where, sizes[place.path], why)
    return DigestCheck("verified", where, sizes[place.path])


def _special_file(path: Path) -> Path | None:
    """What lies in a folder, and is neither a file nor a folder: its digest says nothing of it."""
    inside = path.rglob("*") if path.is_dir() else ()
    return next((one for one in inside if one.is_symlink() or not (one.is_file() or one.is_dir())), None)


def _worst(digest: str, found: Iterable[DigestCheck | None]) -> DigestCheck | None:
    """Altered in one place is altered; a copy that is right makes up for one that is gone."""
    order = ("altered", "verified", "missing")
    return min((one for one in found if one), key=lambda one: order.index(one.state), default=None)


def hash_paths(paths: Iterable[Path]) -> tuple[dict[Path, str], dict[Path, int]]:
    """Digest and size of each file or folder; several files at once, with a line of progress on a terminal."""
    files = {path: dict(_files(path)) for path in paths}
    sizes = {file: file.stat().st_size for inside in files.values() for file in inside.values()}
    digests = dict(_hashes(sizes))
    found = {
        path: digests[path] if path.is_file() else tree_digest({name: digests[inside[name]] for name in inside})
        for path, inside in files.items()
    }
    return found, {path: sum(sizes[file] for file in inside.values()) for path, inside in files.items()}


def _files(path: Path) -> Iterator[tuple[str, Path]]:
    """A folder's files by their paths in it, in the order that its digest takes them; a file is its own."""
    if path.is_file():
        return iter([("", path)])
    inside = {file.relative_to(path).as_posix(): file for file in path.rglob("*") if file.is_file()}
    return iter(sorted(inside.items(), key=lambda item: os.fsencode(item[0])))


def _hashes(sizes: Mapping[Path, int]) -> Iterator[tuple[Path, str]]:
    total, done = sum(sizes.values()), 0
    with step_progress("hashing") as show, ThreadPoolExecutor(TOGETHER) as pool:
        for path, sha in zip(sizes, pool.map(sha256_file, sizes), strict=True):
            done += sizes[path]
            if sys.stdout.isatty() and total > 256 * MEGABYTE:
                show(done // MEGABYTE, total // MEGABYTE, f"MB, {path.name}")
            yield path, sha
