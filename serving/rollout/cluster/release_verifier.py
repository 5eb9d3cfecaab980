"""Verify a release in its store with its whole lineage, as the deploy stage and every pod do.

Weights are not fetched. The release's statement has their digests, and each pod verifies their bytes before it
serves. All other files of the release are fetched and verified here.
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from qinglan.errors import AlteredError, ConfigError, DataError, OutageError, QinglanError
from qinglan.files.digests import tree_digest
from qinglan.lineage.auditing.audit_targets import release_target
from qinglan.lineage.auditing.deploy_gate import may_serve
from qinglan.lineage.release.model_verification import release_files
from qinglan.lineage.release.release_address import ReleaseAddress, parse_release_uri
from qinglan.lineage.signing.trust import TrustPolicy
from qinglan.lineage.trace.release_folder import MODEL, read_release_statement
from qinglan.store import Store, open_store
from serving.rollout.ports import Proof
from serving.rollout.spec import Release

WEIGHTS = ".safetensors"

log = logging.getLogger(__name__)


def prove_release(uri: str, release: Release, policy: TrustPolicy) -> Proof:
    """Verify the release at this URI, and return the proof.

    The release of the rollout must have the name in its spec; the stable model's release may have any name.
    """
    try:
        address = parse_release_uri(uri)
    except ConfigError as error:
        return Proof("", "", (str(error),))
    name = release.name if uri == release.uri else ""
    with _failure_as_outage(address), TemporaryDirectory(prefix="qinglan-rollout-") as folder:
        try:
            return verify_release(open_store(address.store), address, Path(folder) / "release", name, policy)
        except (DataError, AlteredError) as error:
            return Proof(address.digest, "", (str(error),))


def verify_release(store: Store, address: ReleaseAddress, folder: Path, name: str, policy: TrustPolicy) -> Proof:
    """Verify the release. The proof lists all problems. Raises a DataError if the artifact is no release."""
    store.pull(address.digest, folder, select=lambda name: not stays_in_store(name))
    claim = read_release_statement(folder)
    files = release_files(folder, claim)
    absent = frozenset(path for path in files if stays_in_store(path))
    digest = tree_digest({path: files[path] for path in sorted(files, key=str.encode)})
    target = release_target(folder, (), name or claim.name, digest, absent, store)
    decision = may_serve(target, policy, name or claim.name)
    model = next((part.digest for part in claim.statement.made if part.name == MODEL), "")
    return Proof(digest, model, () if decision.allowed else tuple(decision.reasons))


def stays_in_store(name: str) -> bool:
    return name.startswith(f"{MODEL}/") and name.endswith(WEIGHTS)


@contextmanager
def _failure_as_outage(address: ReleaseAddress) -> Iterator[None]:
    """Convert all errors to an OutageError, because a store that cannot be read proves nothing about the release."""
    try:
        yield
    except (QinglanError, OSError) as error:
        log.warning("%s: not verified yet: %s", address.uri, error)
        if isinstance(error, OutageError):
            raise
        raise OutageError(f"{address.uri} could not be read: {error}") from error
