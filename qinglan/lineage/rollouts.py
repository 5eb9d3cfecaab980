"""How a release's way to its users ended: a signed statement for each rollout, laid beside the release in its store.

It holds all that was decided and on which numbers, the policy, the outcome and the reasons, and is signed by a key of
the role `rollout`: a trust policy says whose. It opens no door; it is what an audit can hold against what is served.
"""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, NamedTuple

import orjson

from qinglan.errors import DataError
from qinglan.lineage.claims import AHEAD, judged
from qinglan.lineage.digests import FOLDER
from qinglan.lineage.dsse import IN_TOTO, Envelope, open_envelope, seal
from qinglan.lineage.findings import Finding, State
from qinglan.lineage.keys import Signer
from qinglan.lineage.statement import STATEMENT, moment, subject_digest
from qinglan.lineage.trust import TrustPolicy

ROLLOUT = "urn:qinglan:rollout:v1"
NOTE = "rollout"
"""The word of its note in a store."""


class Told(NamedTuple):
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


class Kept(NamedTuple):
    """A statement beside a release, and what it is worth."""

    told: Told
    state: State
    why: str
    key: str

    @property
    def counts(self) -> bool:
        return self.state == "attested"


def to_payload(told: Told) -> bytes:
    """The same for the same history, whenever it is asked for."""
    said = told._asdict()
    subject = {"name": said.pop("name"), "digest": {FOLDER: said.pop("digest")}}
    body = {"_type": STATEMENT, "predicateType": ROLLOUT, "subject": [subject], "predicate": said}
    return orjson.dumps(body)


def sealed(told: Told, signer: Signer) -> bytes:
    return seal(to_payload(told), IN_TOTO, [signer])


def same(note: bytes, told: Told) -> bool:
    """Whether a note is this statement, whoever signed it: signatures of the same differ."""
    try:
        return to_payload(_parsed(open_envelope(note))) == to_payload(told)
    except DataError:
        return False


def kept_beside(
    notes: Iterable[bytes], policy: TrustPolicy, digest: str, tenant: str, now: datetime | None = None
) -> list[Kept]:
    """Of a release's notes those that tell of a rollout, in the order of time, each once."""
    found = (read_kept(note, policy, digest, tenant, now or datetime.now(UTC)) for note in notes)
    kept = {(to_payload(one.told), one.state, one.why): one for one in found if one is not None}
    return sorted(kept.values(), key=lambda one: (one.told.ended, one.told.rollout))


def read_kept(note: bytes, policy: TrustPolicy, digest: str, tenant: str, now: datetime) -> Kept | None:
    """None where it is a note of another kind; `altered` or `untrusted` where it must not be believed."""
    try:
        envelope = open_envelope(note)
        if ROLLOUT.encode() not in envelope.payload[:300]:
            return None
        told = _parsed(envelope)
        at = moment(told.ended)
    except DataError:
        return None
    state, why, key = judged(envelope, policy, "rollout", tenant, at)
    if state == "attested" and (fault := _fault(told, digest, tenant, at, now)):
        state, why = "altered", fault
    return Kept(told, state, why, key)


def _fault(told: Told, digest: str, tenant: str, at: datetime, now: datetime) -> str:
    """Why a statement that is signed well is none of this release's."""
    if told.digest != digest:
        return f"it is about release {told.digest[:12]}, and lies beside another"
    if told.name.partition("/")[0] != tenant:
        return f"it is about {told.name}, and this is a release of {tenant}"
    return f"it is of {at:%F %T}Z, which is yet to come" if at > now + AHEAD else ""


def findings(kept: Iterable[Kept]) -> list[Finding]:
    """Those that do not count; one that counts needs no word, whatever its outcome."""
    return [Finding(f"rollout {one.told.rollout}", one.state, one.why) for one in kept if not one.counts]


def line(one: Kept) -> str:
    """For an audit's tree."""
    told = one.told
    reasons = f": {'; '.join(told.reasons)}" if told.reasons else ""
    signed = f"signed by key {one.key[:8]}" if one.counts else f"{one.state}: {one.why}"
    return f"rollout {told.rollout} to {told.service}, {told.outcome} {told.ended[:19]}{reasons}, {signed}"


def _parsed(envelope: Envelope) -> Told:
    try:
        body: Any = orjson.loads(envelope.payload)
        if (body["_type"], body["predicateType"]) != (STATEMENT, ROLLOUT):
            raise DataError("no history of a rollout")
        [about], said = body["subject"], body["predicate"]
        return Told(
            subject_digest(about), str(about["name"]), str(said["rollout"]), str(said["service"]),
            str(said["outcome"]), tuple(map(str, said["reasons"])), str(said["began"]), str(said["ended"]),
            dict(said["spec"]), dict(said["stable"]), tuple(map(dict, said["history"])),
        )  # fmt: skip
    except (orjson.JSONDecodeError, KeyError, TypeError, ValueError, AttributeError) as error:
        raise DataError(f"no history of a rollout ({type(error).__name__}: {error}).") from error
