"""Compare the bytes of artifacts with their expected digests; each path is hashed once."""

import sys
from collections.abc import Iterable, Mapping, Set
from pathlib import Path
from typing import NamedTuple

from qinglan.files.digests import digest as digest_of
from qinglan.lineage.signing.findings import State
from qinglan.lineage.signing.statement import ArtifactRef, algorithm_fault
from qinglan.lineage.trace.evidence import Evidence, EvidenceLocation
from qinglan.terminal.progress import step_progress

MEGABYTE = 1 << 20
PRECEDENCE: tuple[State, ...] = ("altered", "verified", "missing")
"""States of an artifact's copies, the decisive one first: one altered copy counts more than a verified copy."""


class DigestCheck(NamedTuple):
    """Result of comparing an artifact's bytes with its digest."""

    state: State
    """One of verified, altered or missing."""

    where: str
    size: int | None = None
    why: str = ""


def check_digests(parts: Mapping[str, ArtifactRef], evidence: Evidence, signed: Set[str]) -> dict[str, DigestCheck]:
    """Compare the bytes of each artifact with its digest. Artifacts without a known location are left out.

    Records are not signed, so a forged record could point anywhere. Therefore a path outside the run is read only for
    digests in `signed`, which trusted statements name, and only if path and digest are of the same kind (file or
    folder).
    """
    locations = {
        digest: [
            location
            for location in evidence.locations(digest, part.name)
            if location.hashed or location.root is not None or digest in signed
        ]
        for digest, part in parts.items()
    }
    faults = {
        location: _location_fault(parts[digest], location) for digest in locations for location in locations[digest]
    }
    to_hash = {location.path for location, fault in faults.items() if not location.hashed and not fault}
    hashes = hash_paths(sorted(path for path in to_hash if path.exists()))
    checks = {}
    for digest, candidates in locations.items():
        results = [check_location(digest, location, faults[location], hashes) for location in candidates]
        if results:
            checks[digest] = min(results, key=lambda check: PRECEDENCE.index(check.state))
    return checks


def _location_fault(part: ArtifactRef, location: EvidenceLocation) -> str:
    """Return a fault that shows before bytes are read, such as a symbolic link in the path; empty if none does."""
    if location.hashed:
        return ""
    if location.root is None:
        return algorithm_fault(part, location.path.is_dir()) if location.path.exists() else ""
    root = location.root.absolute()
    steps = location.path.absolute().relative_to(root).parts
    prefixes = (root.joinpath(*steps[:end]) for end in range(1, len(steps) + 1))
    link = next((prefix for prefix in prefixes if prefix.is_symlink()), None)
    return f"{link} is a symbolic link: its bytes are elsewhere and can change" if link else ""


def check_location(
    digest: str, location: EvidenceLocation, fault: str, hashes: Mapping[Path, tuple[str, int]]
) -> DigestCheck:
    where = str(location.path)
    if fault:
        return DigestCheck("altered", where, None, f"{where}: {fault}" if where not in fault else fault)
    if location.hashed:
        return DigestCheck("verified", where, location.path.stat().st_size if location.path.is_file() else None)
    actual, size = hashes.get(location.path, ("", 0))
    if not actual:
        return DigestCheck("missing", where, None, f"a record says that it is at {where}, but nothing is there")
    # A folder's digest covers neither links nor devices in it.
    entries = location.path.rglob("*") if location.path.is_dir() else ()
    special = (entry for entry in entries if entry.is_symlink() or not (entry.is_file() or entry.is_dir()))
    if odd := next(special, None):
        return DigestCheck("altered", where, size, f"{odd}: a link or a device, where files belong")
    if actual != digest:
        # The digest of a file outside of the run is not shown: an unsigned record could name any file.
        difference = f"have digest {actual[:12]}, not {digest[:12]}" if location.root else f"are not {digest[:12]}"
        return DigestCheck("altered", where, size, f"the bytes at {where} {difference}")
    return DigestCheck("verified", where, size)


def hash_paths(paths: Iterable[Path]) -> dict[Path, tuple[str, int]]:
    """Return digest and size of each file or folder, and show the progress on a terminal."""
    sizes = {}
    for path in paths:
        files = path.rglob("*") if path.is_dir() else [path]
        sizes[path] = sum(file.stat().st_size for file in files if file.is_file())
    hashes, done, total = {}, 0, sum(sizes.values())
    with step_progress("hashing") as show:
        for path, size in sizes.items():
            if sys.stdout.isatty() and total > 256 * MEGABYTE:
                show(done // MEGABYTE, total // MEGABYTE, f"MB, {path.name}")
            hashes[path] = digest_of(path), size
            done += size
    return hashes
