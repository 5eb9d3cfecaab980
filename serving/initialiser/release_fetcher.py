"""Fetch a release from its store into a pod's volume, and verify every byte's digest and all signatures.

    report = fetch_release("s3://qinglan/fivedoctors/releases/<digest>", Path("/mnt/models"), policy)

The folder has the layout of the release, so that the model server can verify the files again when it loads them
(qinglan/lineage/release/model_verification.py). If the URI ends with /model/adapter, merged weights are not fetched.
"""

import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path

from qinglan.errors import AlteredError, DataError
from qinglan.lineage.auditing.deploy_gate import is_grave
from qinglan.lineage.release.model_verification import is_merged_weights, release_files, verify_model
from qinglan.lineage.release.release_address import ADAPTER, ReleaseAddress, parse_release_uri
from qinglan.lineage.release.release_check import check_release
from qinglan.lineage.release.release_notes import Override, read_overrides
from qinglan.lineage.signing.statement_index import index_statements
from qinglan.lineage.signing.trust import TrustPolicy
from qinglan.lineage.trace.evidence import ReleaseFolder
from qinglan.lineage.trace.release_folder import MODEL, ReleaseStatement, read_release_statement
from qinglan.store import open_store

INCOMING = "incoming"
ENVIRONMENT_NAMES = {"QINGLAN_S3_ENDPOINT": "AWS_ENDPOINT_URL", "AWS_REGION": "AWS_DEFAULT_REGION"}
"""KServe's name for each environment variable of the store."""

SHOWN = 5


def fetch_release(uri: str, into: Path, policy: TrustPolicy, environment: Mapping[str, str] = os.environ) -> str:
    """Fetch and verify the release, and put its folders into `into`. Returns a line for the log.

    If the verification fails, an error is raised and nothing is put into `into`.
    """
    address = parse_release_uri(uri)
    incoming = into / INCOMING
    # A pod's volume outlives its containers, so an attempt that was killed may have left files.
    for child in into.iterdir():
        if child.is_symlink() or not child.is_dir():
            child.unlink()
        else:
            shutil.rmtree(child)
    options = {option: environment[name] for option, name in ENVIRONMENT_NAMES.items() if name in environment}
    store = open_store(address.store, {**options, **environment})
    store.pull(address.digest, incoming, select=lambda name: not (address.adapter and is_merged_weights(name)))
    try:
        report = verify_release(incoming, address, policy, lambda: store.notes(address.digest))
    except Exception:
        shutil.rmtree(incoming)
        raise
    # Renamed only after the verification: a server beside this container never sees unverified files.
    for child in sorted(incoming.iterdir()):
        child.rename(into / child.name)
    incoming.rmdir()
    return report


def verify_release(
    release: Path, address: ReleaseAddress, policy: TrustPolicy, notes: Callable[[], Iterable[bytes]] = tuple
) -> str:
    """Verify digest and signatures of the release. Raises an AlteredError with the faults, or a DataError.

    `notes` reads the notes beside the release in its store, and is called only if something is missing, such as the
    gate's promotion. A signed override among the notes allows what is missing, as in a deployment. It does not allow
    anything that is altered or untrusted.
    """
    claim = read_release_statement(release)
    absent = frozenset(name for name in release_files(release, claim) if address.adapter and is_merged_weights(name))
    findings = [finding for finding in check_release(release, policy, absent=absent) if finding.state != "verified"]
    lacking = any(not is_grave(finding) for finding in findings)
    override = _find_override(notes(), policy, address.digest, claim) if lacking else None
    refused = [finding for finding in findings if is_grave(finding) or override is None]
    faults = [f"{finding.what}: {finding.why}" for finding in refused] + [*_statement_faults(release, policy)]
    if faults:
        more = f"; and {len(faults) - SHOWN} more" if len(faults) > SHOWN else ""
        raise AlteredError(
            f"{address.uri}: {'; '.join(faults[:SHOWN])}{more}. Nothing of it is served. `qinglan audit` says who "
            "signed what; the ConfigMap qinglan-trust says whose signatures count."
        )
    proof = verify_model(release / MODEL, weights=not address.adapter)
    if proof.release_digest != address.digest:
        raise AlteredError(
            f"{address.uri}: what lies there is the release {proof.release_digest}. Nothing of it is served."
        )
    if address.adapter and not (release / ADAPTER.strip("/")).is_dir():
        raise DataError(f"{address.uri}: this release has no adapter. Name it without {ADAPTER}.")
    left = f"; {', '.join(sorted(absent))} stayed in the store" if absent else ""
    allowed = f"; it serves by an override of {override.by}: {override.reason}" if override else ""
    return (
        f"{claim.name} {address.digest[:12]}, model {proof.version}: every byte and signature verified{left}{allowed}"
    )


def _find_override(
    notes: Iterable[bytes], policy: TrustPolicy, digest: str, claim: ReleaseStatement
) -> Override | None:
    """Find the override that a releaser's key has signed for this release and its name; None if there is none."""
    overrides = read_overrides(notes, policy, digest, claim.tenant, datetime.now(UTC))
    return next((override for override in overrides if override.name == claim.name), None)


def _statement_faults(release: Path, policy: TrustPolicy) -> Iterator[str]:
    """Yield the stage and the problem of each statement of the release that is not attested."""
    tenant = read_release_statement(release).tenant
    claims = index_statements(ReleaseFolder(release).statements(), policy, tenant, datetime.now(UTC))
    for step in claims.steps.values():
        if step.state != "attested":
            yield f"statement of {step.statement.stage}: {step.why}"
