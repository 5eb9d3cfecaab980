"""Fetch releases from their store to the disk, like a pod's initialiser."""

import fcntl
from pathlib import Path

from qinglan.files.plain_files import open_lock
from qinglan.lineage.release.release_address import parse_release_uri

FETCHED = "releases"


def fetch_release(uri: str, folder: Path) -> Path:
    """Fetch a release once, verify every byte by its digest, and return the release's local folder."""
    from qinglan.store import open_store

    address = parse_release_uri(uri)
    into = folder / FETCHED / address.digest
    into.parent.mkdir(parents=True, exist_ok=True)
    with open_lock(into.parent / f".{address.digest[:12]}.lock") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # both the server and the controller fetch it
        return into if into.is_dir() else open_store(address.store).pull(address.digest, into)
