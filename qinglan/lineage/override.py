"""Breaking the glass: somebody with a releaser's key lets a release pass although something is missing.

It is signed, says who and why, and is shown in red in every later audit. It never covers bytes or signatures of the
release itself that are wrong.
"""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

import orjson

from qinglan.digests import FOLDER_ALGORITHM
from qinglan.errors import ConfigError, DataError
from qinglan.lineage.dsse import IN_TOTO, open_envelope, sign_envelope
from qinglan.lineage.keys import Signer
from qinglan.lineage.statement import STATEMENT_TYPE, parse_time, subject_digest
from qinglan.lineage.statement_index import BREAK_GLASS, MAX_CLOCK_AHEAD, verify_signatures
from qinglan.lineage.trust import TrustPolicy

LEAST_REASON = 10


class Override(NamedTuple):
    digest: str
    """Of the release's folder."""

    name: str
    by: str
    reason: str
    at: str
    missing: tuple[str, ...]
    """What stood against it at the time."""

    key: str = ""
    """Whose signature it is."""


def make_override(
    signer: Signer, digest: str, name: str, by: str, reason: str, missing: Sequence[str], at: datetime | None = None
) -> bytes:
    """The signed statement; a ConfigError without a person and a reason that tells something."""
    if not (by + reason).isprintable():
        raise ConfigError("--by and --break-glass: a line of plain text each, as every later audit shows them.")
    if not by.strip() or len(reason.strip()) < LEAST_REASON:
        raise ConfigError(f"Who breaks the glass says who it is (--by) and why, in {LEAST_REASON} letters or more.")
    if signer.role != "releaser":
        raise ConfigError(f"{signer.path}: a {signer.role}'s key; only a releaser's breaks the glass.")
    when = (at or datetime.now(UTC)).isoformat(timespec="milliseconds")
    body = {
        "_type": STATEMENT_TYPE,
        "predicateType": BREAK_GLASS,
        "subject": [{"name": name, "digest": {FOLDER_ALGORITHM: digest}}],
        "predicate": {"by": by.strip(), "reason": reason.strip(), "at": when, "missing": list(missing)},
    }
    return sign_envelope(orjson.dumps(body), IN_TOTO, [signer])


def read_override(
    sealed: bytes, policy: TrustPolicy, tenant: str, now: datetime | None = None, where: str = "override"
) -> Override:
    """What it says, if a releaser's key that counts has signed it; a DataError otherwise."""
    envelope = open_envelope(sealed, where)
    override = _parse_override(envelope.payload, where)
    at = parse_time(override.at)
    state, why, key = verify_signatures(envelope, policy, "releaser", tenant, at)
    if state != "attested":
        raise DataError(f"{where}: this override does not count: {why}.")
    if at > (now or datetime.now(UTC)) + MAX_CLOCK_AHEAD:
        raise DataError(f"{where}: this override is of {at:%F %T}Z, which is yet to come.")
    if len(override.reason) < LEAST_REASON or not override.by:
        raise DataError(f"{where}: this override says neither who nor why.")
    return override._replace(key=key)


def _parse_override(payload: bytes, where: str) -> Override:
    try:
        body: Any = orjson.loads(payload)
        if (body["_type"], body["predicateType"]) != (STATEMENT_TYPE, BREAK_GLASS):
            raise DataError(f"{where}: no override ({body['predicateType']}).")
        [about], said = body["subject"], body["predicate"]
        missing = tuple(map(str, said["missing"]))
        return Override(
            subject_digest(about), str(about["name"]), str(said["by"]).strip(),
            str(said["reason"]).strip(), str(said["at"]), missing,
        )  # fmt: skip
    except (orjson.JSONDecodeError, KeyError, TypeError, ValueError, AttributeError) as error:
        raise DataError(f"{where}: no override ({type(error).__name__}: {error}).") from error
