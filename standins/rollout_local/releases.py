"""Releases on disk: fetched from their store as a pod's initialiser does, and proven as the deploy stage does."""

import fcntl
from pathlib import Path

from qinglan.errors import ConfigError, DataError
from qinglan.lineage.release_address import parse_release_uri
from qinglan.lineage.trust import default_trust
from serving.rollout.ports import Proof

FETCHED = "releases"


def fetch_release(uri: str, folder: Path) -> Path:
    """The release's local folder, fetched once, with every byte verified by its digest."""
    from qinglan.store import open_store

    address = parse_release_uri(uri)
    into = folder / FETCHED / address.digest
    into.parent.mkdir(parents=True, exist_ok=True)
    with (into.parent / f".{address.digest[:12]}.lock").open("ab") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # both the server and the controller fetch it
        return into if into.is_dir() else open_store(address.store).pull(address.digest, into)


class FileReleaseVerifier:
    """Proves a release by its whole lineage walk, under this machine's trust policy."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def prove(self, uri: str) -> Proof:
        try:
            return self._proven(uri)
        except (ConfigError, DataError) as error:
            return Proof("", "", (str(error),))

    def _proven(self, uri: str) -> Proof:
        from qinglan.lineage.audit_targets import read_notes, release_target
        from qinglan.lineage.deploy_gate import may_serve
        from qinglan.lineage.release_folder import MODEL, read_release
        from qinglan.store import open_store

        address, policy = parse_release_uri(uri), default_trust()
        release_folder = fetch_release(uri, self._folder)
        release = read_release(release_folder)
        notes = tuple(read_notes(open_store(address.store), address.digest))
        target = release_target(release_folder, (), release.name, notes=notes)
        decision = may_serve(target, policy, release.name)
        model = next((part.digest for part in release.statement.made if part.name == MODEL), "")
        return Proof(release.digest, model, () if decision.allowed else tuple(decision.reasons))
