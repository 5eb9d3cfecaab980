"""Sign and check the history of a name in a store, to prove who pointed the name at which release.

store.point(name, digest, expected, signer.id, sign_with(signer))
name_findings(claim, policy, now)       # [] if a trusted releaser's key signed the newest entry

Each entry holds the sha256 of the entry before it, so a signature on the newest entry covers all of them. The history
cannot prove that no newer entry was removed. Two other sources can show a removal: a release in the store that was
signed for the name later (`name_findings`), and a ModelRollout of a release that the history lacks
(`forgotten_releases`).
"""

import base64
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, NamedTuple

from qinglan.clock import how_long
from qinglan.errors import DataError
from qinglan.lineage.signing.dsse import Envelope, Signature, pre_authentication_encoding, verify_signature
from qinglan.lineage.signing.findings import Finding, State
from qinglan.lineage.signing.keys import Signer
from qinglan.lineage.signing.signed_statement import parse_signed_statement, verify_statement
from qinglan.lineage.signing.statement import RELEASE_STAGE
from qinglan.lineage.signing.statement_index import MAX_CLOCK_AHEAD
from qinglan.lineage.signing.trust import TrustPolicy
from qinglan.lineage.trace.release_folder import PROMOTE, PROVENANCE
from qinglan.store.name_history import EntrySignature, HistoryEntry, NameHistory, SignEntry
from qinglan.store.store import RELEASES, Store

ENTRY_TYPE = "application/vnd.qinglan.name+json"
"""DSSE payload type of a history entry. Because of it, another document's signature never counts for an entry."""


class NameClaim(NamedTuple):
    """Evidence in a store about the release to which a name points."""

    history: NameHistory
    unnamed: Mapping[str, bytes]
    """Statements of the store's releases that no entry of the history names, by the release's digest."""


def read_claim(store: Store, history: NameHistory) -> NameClaim:
    pointed_at = {entry.digest for entry in history.history}
    statements = {
        digest: store.backend.read(f"{RELEASES}/{digest}/{PROVENANCE}") or b""
        for digest in store.digests()
        if digest not in pointed_at
    }
    return NameClaim(history, statements)


def sign_with(signer: Signer) -> SignEntry:
    """Return a function that signs an entry in DSSE's encoding."""

    def sign(payload: bytes) -> EntrySignature:
        signed = signer.sign(pre_authentication_encoding(payload, ENTRY_TYPE))
        return EntrySignature(signer.id, base64.b64encode(signed).decode())

    return sign


def name_findings(claim: NameClaim, policy: TrustPolicy, now: datetime) -> list[Finding]:
    """Return findings if a name's newest entry is not trusted, or if a newer entry seems to have been removed."""
    name, newest = claim.history.name, claim.history.current
    if fault := entry_fault(claim.history, policy, now):
        return [fault]
    return [
        Finding(
            f"name {name}",
            "missing",
            f"release {digest[:12]} was signed for it later than its newest entry, and no entry names that release: "
            "register did not end, or somebody removed the entry",
        )
        for digest, sealed in claim.unnamed.items()
        if _signed_later(sealed, name, newest, policy)
    ]


def entry_fault(history: NameHistory, policy: TrustPolicy, now: datetime) -> Finding | None:
    """Return a finding if the newest entry is not trusted; None if it is."""
    newest, at = history.current, datetime.fromisoformat(history.current.time)
    state: State
    if not newest.signature:
        state, why = "untrusted", "nobody signed it"
    elif newest.name != history.name:
        state, why = "altered", f"it was signed for {newest.name}"
    else:
        tenant = history.name.partition("/")[0]
        state, why, _ = policy.check_signatures(_envelope(newest), "releaser", tenant, at)
    if state == "attested" and at - now > MAX_CLOCK_AHEAD:
        state = "altered"
        why = (
            f"it is dated {how_long(at - now)} in the future ({newest.time}). If a clock was ahead there, it is "
            "trusted from that time on, and register under the right clock moves the name again"
        )
    if state == "attested":
        return None
    return Finding(f"name {history.name}", state, f"entry {len(history.history)}: {why}")


def foreign_entry_fault(history: NameHistory, policy: TrustPolicy | None) -> str:
    """Return why `register` cannot have written a name's newest entry; empty if it may have. A rotated key counts."""
    newest, number = history.current, len(history.history)
    if not newest.signature:
        signed_before = any(entry.signature for entry in history.history)
        return f"entry {number} is not signed, and an earlier one is" if signed_before else ""
    if policy is None:
        return ""
    trusted = policy.keys.get(newest.key)
    if trusted is None or trusted.role != "releaser":
        return f"entry {number} is signed by key {newest.key[:12]}, and the trust policy has no such releaser"
    envelope = _envelope(newest)
    if newest.name != history.name or not verify_signature(envelope, envelope.signatures[0], trusted.key):
        return f"entry {number} is not what key {newest.key[:12]} signed"
    return ""


def forgotten_releases(history: NameHistory, rollouts: Iterable[Mapping[str, Any]]) -> list[str]:
    """List rollouts of this name whose release the history lacks, each with the start of the release's digest."""
    pointed_at = {entry.digest for entry in history.history}
    releases = ((rollout["metadata"]["name"], rollout["spec"]["release"]) for rollout in rollouts)
    return [
        f"{rollout} deployed {str(release['digest'])[:12]}"
        for rollout, release in releases
        if release["name"] == history.name and release["digest"] not in pointed_at
    ]


def _envelope(entry: HistoryEntry) -> Envelope:
    try:
        value = base64.b64decode(entry.signature, validate=True)
    except ValueError:
        value = b""  # a value that no key verifies
    return Envelope(entry.payload, ENTRY_TYPE, (Signature(entry.key, value),))


def _signed_later(sealed: bytes, name: str, newest: HistoryEntry, policy: TrustPolicy) -> bool:
    """Return True if a trusted key signed a promoted release for this name, later than the newest entry."""
    try:
        item = parse_signed_statement(sealed, PROVENANCE)
    except DataError:
        return False
    statement = item.statement
    promoted = statement.stage == RELEASE_STAGE and statement.facts.get("verdict") == PROMOTE
    if not promoted or statement.config.get("name") != name or statement.at <= datetime.fromisoformat(newest.time):
        return False
    return verify_statement(item, policy, name.partition("/")[0])[0] == "attested"
