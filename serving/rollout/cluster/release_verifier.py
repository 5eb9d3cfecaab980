"""What a release in its store is worth: its whole lineage walked, as the deploy stage and every pod do it again.

Weights stay in the store. The release's statement has their digests, and each pod verifies their bytes before it
serves; whatever else there is of the release is fetched and judged here, anew at every look.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from qinglan.digests import tree_digest
from qinglan.errors import AlteredError, ConfigError, DataError, OutageError, QinglanError
from qinglan.lineage.audit_targets import read_notes, release_target
from qinglan.lineage.deploy_gate import may_serve
from qinglan.lineage.model_verification import release_files
from qinglan.lineage.release_address import ReleaseAddress, parse_release_uri
from qinglan.lineage.release_folder import MODEL, ReleaseStatement, read_release_statement
from qinglan.lineage.trust import TrustPolicy
from qinglan.store import Store, open_store
from serving.rollout.ports import Proof
from serving.rollout.spec import Release

WEIGHTS = ".safetensors"


class StoreReleaseVerifier:
    """Of one rollout: its release must be of the name that was asked for; the stable one is what it says it is."""

    def __init__(self, release: Release, policy: Callable[[], TrustPolicy]) -> None:
        self.release, self.policy = release, policy

    def prove(self, uri: str) -> Proof:
        name = self.release.name if uri == self.release.uri else ""
        try:
            address = parse_release_uri(uri)
        except ConfigError as error:
            return Proof("", "", (str(error),))
        with _failure_as_outage(address), TemporaryDirectory(prefix="qinglan-rollout-") as folder:
            try:
                return verify_release(
                    open_store(address.store), address, Path(folder) / "release", name, self.policy()
                )
            except (DataError, AlteredError) as error:
                return Proof(address.digest, "", (str(error),))


def verify_release(store: Store, address: ReleaseAddress, folder: Path, name: str, policy: TrustPolicy) -> Proof:
    """Everything that stands against it at once; a DataError where it is no release."""
    store.pull(address.digest, folder, wanted=lambda one: not stays_in_store(one))
    claim = read_release_statement(folder)
    files = release_files(folder, claim)
    absent = frozenset(one for one in files if stays_in_store(one))
    notes = tuple(read_notes(store, address.digest))
    digest = tree_digest({one: files[one] for one in sorted(files, key=str.encode)})
    one = release_target(folder, (), name or claim.name, digest, notes, absent)
    decision = may_serve(one, policy, name or claim.name)
    return Proof(digest, model_digest(claim), () if decision.allowed else tuple(decision.reasons))


def stays_in_store(name: str) -> bool:
    return name.startswith(f"{MODEL}/") and name.endswith(WEIGHTS)


def model_digest(claim: ReleaseStatement) -> str:
    """Of the model, by the release's statement."""
    digests: Mapping[str, str] = {part.name: part.digest for part in claim.statement.made}
    return digests.get(MODEL, "")


@contextmanager
def _failure_as_outage(address: ReleaseAddress) -> Iterator[None]:
    """What is wrong with the way to the store says nothing of the release."""
    try:
        yield
    except OutageError:
        raise
    except (QinglanError, OSError) as error:
        raise OutageError(f"{address.uri} could not be read: {error}") from error
