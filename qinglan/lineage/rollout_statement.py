"""How a release's way to its users ended: a signed statement for each rollout, laid beside the release in its store.

It holds all that was decided and on which numbers, the policy, the outcome and the reasons, and is signed by a key of
the role `rollout`: a trust policy says whose. It opens no door; it is what an audit can hold against what is served.
"""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, NamedTuple

import orjson

from qinglan.digests import FOLDER_ALGORITHM
from qinglan.errors import DataError
from qinglan.lineage.dsse import IN_TOTO, Envelope, open_envelope, sign_envelope
from qinglan.lineage.findings import Finding, State
from qinglan.lineage.keys import Signer
from qinglan.lineage.statement import STATEMENT_TYPE, parse_time, subject_digest
from qinglan.lineage.statement_index import MAX_CLOCK_AHEAD, verify_signatures
from qinglan.lineage.trust import TrustPolicy

ROLLOUT_TYPE = "urn:qinglan:rollout:v1"
ROLLOUT_NOTE = "rollout"
"""The word of its note in a store."""


class RolloutStatement(NamedTuple):
    """What a statement says."""

    digest: str
    """Of the release's folder."""

    name: str
    """Tenant and model."""

    rollout: str
    """namespace/name."""

    service: str
    outcome: str
    reasons: tuple[str, ...]
    began: str
    ended: str
    spec: Mapping[str, Any]
    """The whole policy, with run and verdict, as it was made."""

    stable: Mapping[str, Any]
    """The release that was served before; empty where nobody came to know it."""

    history: tuple[Mapping[str, Any], ...]
    """Each decision with its figures."""


class CheckedRollout(NamedTuple):
    """A statement beside a release, and what it is worth."""

    told: RolloutStatement
    state: State
    why: str
    key: str

    @property
    def counts(self) -> bool:
        return self.state == "attested"


def rollout_payload(told: RolloutStatement) -> bytes:
    """The same for the same history, whenever it is asked for."""
    said = told._asdict()
    subject = {"name": said.pop("name"), "digest": {FOLDER_ALGORITHM: said.pop("digest")}}
    body = {"_type": STATEMENT_TYPE, "predicateType": ROLLOUT_TYPE, "subject": [subject], "predicate": said}
    return orjson.dumps(body)


def sign_rollout(told: RolloutStatement, signer: Signer) -> bytes:
    return sign_envelope(rollout_payload(told), IN_TOTO, [signer])


def is_same_statement(note: bytes, told: RolloutStatement) -> bool:
    """Whether a note is this statement, whoever signed it: signatures of the same differ."""
    try:
        return rollout_payload(_parse_rollout(open_envelope(note))) == rollout_payload(told)
    except DataError:
        return False


def read_rollout_notes(
    notes: Iterable[bytes], policy: TrustPolicy, digest: str, tenant: str, now: datetime | None = None
) -> list[CheckedRollout]:
    """Of a release's notes those that tell of a rollout, in the order of time, each once."""
    found = (read_rollout_note(note, policy, digest, tenant, now or datetime.now(UTC)) for note in notes)
    kept = {(rollout_payload(one.told), one.state, one.why): one for one in found if one is not None}
    return sorted(kept.values(), key=lambda one: (one.told.ended, one.told.rollout))


def read_rollout_note(
    note: bytes, policy: TrustPolicy, digest: str, tenant: str, now: datetime
) -> CheckedRollout | None:
    """None where it is a note of another kind; `altered` or `untrusted` where it must not be believed."""
    try:
        envelope = open_envelope(note)
        if ROLLOUT_TYPE.encode() not in envelope.payload[:300]:
            return None
        told = _parse_rollout(envelope)
        at = parse_time(told.ended)
    except DataError:
        return None
    state, why, key = verify_signatures(envelope, policy, "rollout", tenant, at)
    if state == "attested" and (fault := _mismatch(told, digest, tenant, at, now)):
        state, why = "altered", fault
    return CheckedRollout(told, state, why, key)


def _mismatch(told: RolloutStatement, digest: str, tenant: str, at: datetime, now: datetime) -> str:
    """Why a statement that is signed well is none of this release's."""
    if told.digest != digest:
        return f"it is about release {told.digest[:12]}, and lies beside another"
    if told.name.partition("/")[0] != tenant:
        return f"it is about {told.name}, and this is a release of {tenant}"
    return f"it is of {at:%F %T}Z, which is yet to come" if at > now + MAX_CLOCK_AHEAD else ""


def findings_of_rollouts(kept: Iterable[CheckedRollout]) -> list[Finding]:
    """Those that do not count; one that counts needs no word, whatever its outcome."""
    return [Finding(f"rollout {one.told.rollout}", one.state, one.why) for one in kept if not one.counts]


def format_rollout(one: CheckedRollout) -> str:
    """For an audit's tree."""
    told = one.told
    reasons = f": {'; '.join(told.reasons)}" if told.reasons else ""
    signed = f"signed by key {one.key[:8]}" if one.counts else f"{one.state}: {one.why}"
    return f"rollout {told.rollout} to {told.service}, {told.outcome} {told.ended[:19]}{reasons}, {signed}"


def _parse_rollout(envelope: Envelope) -> RolloutStatement:
    try:
        body: Any = orjson.loads(envelope.payload)
        if (body["_type"], body["predicateType"]) != (STATEMENT_TYPE, ROLLOUT_TYPE):
            raise DataError("no history of a rollout")
        [about], said = body["subject"], body["predicate"]
        return RolloutStatement(
            subject_digest(about), str(about["name"]), str(said["rollout"]), str(said["service"]),
            str(said["outcome"]), tuple(map(str, said["reasons"])), str(said["began"]), str(said["ended"]),
            dict(said["spec"]), dict(said["stable"]), tuple(map(dict, said["history"])),
        )  # fmt: skip
    except (orjson.JSONDecodeError, KeyError, TypeError, ValueError, AttributeError) as error:
        raise DataError(f"no history of a rollout ({type(error).__name__}: {error}).") from error
