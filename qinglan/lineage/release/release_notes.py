"""Signed notes beside a release in its store: overrides of the deploy gate, and histories of rollouts.

An override ("breaking the glass") permits the deployment of a release although evidence is missing. It says who
permits it and why, a releaser's key signs it, and every later audit shows it in red. It never covers changed bytes or
wrong signatures.

A rollout's statement holds the policy, all decisions with their figures, the outcome and the reasons, signed by a key
of the role `rollout`. It permits nothing, but an audit can compare it with the release that is served.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

import orjson

from qinglan.documents import parse_json_mapping
from qinglan.errors import ConfigError, DataError
from qinglan.files.digests import FILE_ALGORITHM, FOLDER_ALGORITHM
from qinglan.lineage.signing.dsse import IN_TOTO, Envelope, open_envelope, sign_envelope
from qinglan.lineage.signing.findings import Finding, State
from qinglan.lineage.signing.keys import Signer
from qinglan.lineage.signing.signed_statement import verify_signatures
from qinglan.lineage.signing.statement import STATEMENT_TYPE, parse_time
from qinglan.lineage.signing.statement_index import BREAK_GLASS, MAX_CLOCK_AHEAD
from qinglan.lineage.signing.trust import TrustPolicy

ROLLOUT_TYPE = "urn:qinglan:rollout:v1"
ROLLOUT_NOTE = "rollout"
"""Kind of note under which a store keeps a rollout's statement."""

MIN_REASON_LENGTH = 10
PARSE_ERRORS = (ValueError, KeyError, TypeError, AttributeError)


class Override(NamedTuple):
    digest: str
    """The digest of the release's folder."""

    name: str
    by: str
    reason: str
    at: str
    missing: tuple[str, ...]
    """Reasons against the deployment when the override was signed."""

    key: str = ""
    """Id of the key that signed the override."""


class RolloutStatement(NamedTuple):
    """The history of one rollout."""

    digest: str
    """The digest of the release's folder."""

    name: str
    """Name of the release, as tenant/model."""

    rollout: str
    """ModelRollout as namespace/name."""

    service: str
    outcome: str
    reasons: tuple[str, ...]
    began: str
    ended: str
    spec: Mapping[str, Any]
    """Whole spec of the ModelRollout: policy, run and verdict."""

    stable: Mapping[str, Any]
    """The release that was served before; empty if it is unknown."""

    history: tuple[Mapping[str, Any], ...]
    """Decisions, each with its figures."""


class CheckedRollout(NamedTuple):
    """A rollout's statement beside a release, and the state of its signature."""

    statement: RolloutStatement
    state: State
    why: str
    key: str

    @property
    def is_trusted(self) -> bool:
        return self.state == "attested"


def make_override(
    signer: Signer, digest: str, name: str, by: str, reason: str, missing: Sequence[str], at: datetime | None = None
) -> bytes:
    """Sign an override; raises a ConfigError without a person, a long enough reason or a releaser's key."""
    if not (by + reason).isprintable():
        raise ConfigError("--by and --break-glass: a line of plain text each, as every later audit shows them.")
    if not by.strip() or len(reason.strip()) < MIN_REASON_LENGTH:
        raise ConfigError(f"An override needs a person (--by) and a reason of at least {MIN_REASON_LENGTH} letters.")
    if signer.role != "releaser":
        raise ConfigError(f"{signer.path}: a {signer.role}'s key; only a releaser's key may sign an override.")
    when = (at or datetime.now(UTC)).isoformat(timespec="milliseconds")
    predicate = {"by": by.strip(), "reason": reason.strip(), "at": when, "missing": list(missing)}
    return sign_envelope(_payload(BREAK_GLASS, name, digest, predicate), IN_TOTO, [signer])


def read_override(
    sealed: bytes, policy: TrustPolicy, tenant: str, now: datetime | None = None, where: str = "override"
) -> Override:
    """Read an override; raises a DataError if it is malformed or no trusted releaser's key signed it."""
    envelope = open_envelope(sealed, where)
    try:
        digest, name, predicate = _parse(envelope, BREAK_GLASS)
        by, reason = str(predicate["by"]).strip(), str(predicate["reason"]).strip()
        override = Override(digest, name, by, reason, str(predicate["at"]), tuple(map(str, predicate["missing"])))
    except PARSE_ERRORS as error:
        raise DataError(f"{where}: not an override ({type(error).__name__}: {error}).") from error
    at = parse_time(override.at)
    state, why, key = verify_signatures(envelope, policy, "releaser", tenant, at)
    if state != "attested":
        raise DataError(f"{where}: this override is not trusted: {why}.")
    if at > (now or datetime.now(UTC)) + MAX_CLOCK_AHEAD:
        raise DataError(f"{where}: this override is dated {at:%F %T}Z, in the future.")
    if len(override.reason) < MIN_REASON_LENGTH or not override.by:
        raise DataError(f"{where}: this override says neither who nor why.")
    return override._replace(key=key)


def read_overrides(
    notes: Iterable[bytes], policy: TrustPolicy, digest: str, tenant: str, now: datetime
) -> list[Override]:
    """Return the trusted overrides of this release; other notes are skipped."""
    overrides = []
    for note in notes:
        try:
            overrides.append(read_override(note, policy, tenant, now))
        except DataError:
            continue
    return [override for override in overrides if override.digest == digest]


def rollout_payload(rollout: RolloutStatement) -> bytes:
    """Serialise a rollout's statement to the bytes that are signed. Equal statements give equal bytes."""
    predicate = rollout._asdict()
    return _payload(ROLLOUT_TYPE, predicate.pop("name"), predicate.pop("digest"), predicate)


def sign_rollout(rollout: RolloutStatement, signer: Signer) -> bytes:
    return sign_envelope(rollout_payload(rollout), IN_TOTO, [signer])


def is_same_statement(note: bytes, rollout: RolloutStatement) -> bool:
    """Return True if a note holds this statement. Signatures are ignored, since two over equal bytes may differ."""
    try:
        return rollout_payload(_parse_rollout(open_envelope(note))) == rollout_payload(rollout)
    except DataError:
        return False


def read_rollout_notes(
    notes: Iterable[bytes], policy: TrustPolicy, digest: str, tenant: str, now: datetime | None = None
) -> list[CheckedRollout]:
    """Return the checked rollout statements among a release's notes, oldest first, without duplicates."""
    checked = (read_rollout_note(note, policy, digest, tenant, now or datetime.now(UTC)) for note in notes)
    unique = {(rollout_payload(item.statement), item.state, item.why): item for item in checked if item is not None}
    return sorted(unique.values(), key=lambda item: (item.statement.ended, item.statement.rollout))


def read_rollout_note(
    note: bytes, policy: TrustPolicy, digest: str, tenant: str, now: datetime
) -> CheckedRollout | None:
    """Check a rollout's note as attested, altered or untrusted; returns None for another kind of note."""
    try:
        envelope = open_envelope(note)
        if ROLLOUT_TYPE.encode() not in envelope.payload[:300]:
            return None
        rollout = _parse_rollout(envelope)
        at = parse_time(rollout.ended)
    except DataError:
        return None
    state, why, key = verify_signatures(envelope, policy, "rollout", tenant, at)
    fault = ""
    if rollout.digest != digest:
        fault = f"it is about release {rollout.digest[:12]}, and is stored beside another release"
    elif rollout.name.partition("/")[0] != tenant:
        fault = f"it is about {rollout.name}, and this is a release of {tenant}"
    elif at > now + MAX_CLOCK_AHEAD:
        fault = f"it is dated {at:%F %T}Z, in the future"
    if state == "attested" and fault:
        state, why = "altered", fault
    return CheckedRollout(rollout, state, why, key)


def note_findings(changed: Iterable[str], rollouts: Iterable[CheckedRollout]) -> list[Finding]:
    """Return findings about changed notes and untrusted rollout statements. A failed rollout is not a finding."""
    why = "it is not what was laid beside the release, so it is not trusted"
    findings = [Finding(f"note {name}", "altered", why) for name in changed]
    return findings + [
        Finding(f"rollout {item.statement.rollout}", item.state, item.why) for item in rollouts if not item.is_trusted
    ]


def format_rollout(item: CheckedRollout) -> str:
    rollout = item.statement
    reasons = f": {'; '.join(rollout.reasons)}" if rollout.reasons else ""
    signed = f"signed by key {item.key[:8]}" if item.is_trusted else f"{item.state}: {item.why}"
    ended = rollout.ended[:19]
    return f"rollout {rollout.rollout} to {rollout.service}, {rollout.outcome} {ended}{reasons}, {signed}"


def _parse_rollout(envelope: Envelope) -> RolloutStatement:
    try:
        digest, name, predicate = _parse(envelope, ROLLOUT_TYPE)
        fields = ("rollout", "service", "outcome", "began", "ended")
        rollout, service, outcome, began, ended = (str(predicate[field]) for field in fields)
        reasons, history = tuple(map(str, predicate["reasons"])), tuple(map(dict, predicate["history"]))
        spec, stable = dict(predicate["spec"]), dict(predicate["stable"])
        return RolloutStatement(digest, name, rollout, service, outcome, reasons, began, ended, spec, stable, history)
    except PARSE_ERRORS as error:
        raise DataError(f"not a rollout's history ({type(error).__name__}: {error}).") from error


def _payload(kind: str, name: str, digest: str, predicate: Mapping[str, Any]) -> bytes:
    subject = {"name": name, "digest": {FOLDER_ALGORITHM: digest}}
    return orjson.dumps(
        {"_type": STATEMENT_TYPE, "predicateType": kind, "subject": [subject], "predicate": predicate}
    )


def _parse(envelope: Envelope, kind: str) -> tuple[str, str, Mapping[str, Any]]:
    """Return digest and name of a note's release, and its predicate; raises one of PARSE_ERRORS for other notes."""
    body = parse_json_mapping(envelope.payload, "note")
    if (body["_type"], body["predicateType"]) != (STATEMENT_TYPE, kind):
        raise ValueError(f"a {body['predicateType']}")
    [subject] = body["subject"]
    digests = subject["digest"]
    # Older notes call the digest of the release's folder `sha256`.
    digest = digests[FOLDER_ALGORITHM] if FOLDER_ALGORITHM in digests else digests[FILE_ALGORITHM]
    return str(digest), str(subject["name"]), body["predicate"]
