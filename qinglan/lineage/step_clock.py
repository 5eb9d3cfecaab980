"""The times in a step's statement: they stay in the order of the work, even if the machine's clock is set back.

    clock = step_clock(signer, lineage)
    clock.started       when the step began
    clock.now()         this moment, by the same clock

An audit calls a step altered that ended before it began, or began before its inputs were made. A clock that is set
back while a run works would leave such statements, for good.
"""

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

from qinglan.errors import ConfigError, DataError
from qinglan.lineage.dsse import ENVELOPE_SUFFIX, Envelope, open_envelope, verify_signature
from qinglan.lineage.keys import ROLES, PublicKey, Signer, load_signer
from qinglan.lineage.statement import Statement, from_payload
from qinglan.lineage.statement_index import signing_role
from qinglan.lineage.trust import TrustPolicy, policy_at_hand
from qinglan.plain_files import read_plain

Verified = Callable[[Envelope, Statement], bool]
"""True if a statement's signature is verified."""

LONG_AGO = datetime.min.replace(tzinfo=UTC)


class StepClock:
    """A clock that starts at the machine's time, or at the end of the steps before it, and never goes back.

    After its start it counts by `time.monotonic`, which setting the machine's clock does not change.
    """

    def __init__(self, earlier: datetime = LONG_AGO) -> None:
        self.began = max(datetime.now(UTC), _next_millisecond(earlier))
        self._monotonic = time.monotonic()

    @property
    def started(self) -> str:
        return iso_time(self.began)

    def now(self) -> str:
        return iso_time(self.began + timedelta(seconds=time.monotonic() - self._monotonic))


def step_clock(signer: Signer, lineage: Path | None) -> StepClock:
    """The clock of a step that this key signs, after the steps whose statements are in the folder.

    It does not start before the key was made, if a trust policy on this machine says when that was.
    """
    policy = policy_at_hand()
    key = policy.keys.get(signer.id) if policy else None
    verified = _by_policy(policy) if policy else _by_keys([signer, *_signers_at_hand()])
    return StepClock(max(last_time(lineage, verified), key.since if key else LONG_AGO))


def iso_time(moment: datetime) -> str:
    return moment.isoformat(timespec="milliseconds")


def _next_millisecond(moment: datetime) -> datetime:
    """The first moment, not before this one, that `iso_time` does not cut: a `since` by hand may have more digits."""
    return moment + timedelta(microseconds=-moment.microsecond % 1000)


def last_time(lineage: Path | None, verified: Verified) -> datetime:
    """The newest end of the steps whose verified statements lie there.

    Unverified statements are skipped: one dated in the year 9999 would push the dates of all later steps there.
    """
    paths = lineage.glob(f"*{ENVELOPE_SUFFIX}") if lineage else ()
    return max(_times(paths, verified), default=LONG_AGO)


def _times(paths: Iterable[Path], verified: Verified) -> Iterable[datetime]:
    for path in paths:
        try:
            envelope = open_envelope(read_plain(path), str(path))
            statement = from_payload(envelope.payload, str(path))
            if verified(envelope, statement):
                yield statement.at
        except (DataError, OSError):
            continue


def _by_policy(policy: TrustPolicy) -> Verified:
    """Check for a trusted signature for any tenant, as the tenant is not known here."""

    def verified(envelope: Envelope, statement: Statement) -> bool:
        signing = (policy.keys[signature.key] for signature in envelope.signatures if signature.key in policy.keys)
        tenants = {tenant for key in signing for tenant in key.tenants}
        role = signing_role(statement)
        states = (policy.check_signatures(envelope, role, tenant, statement.at)[0] for tenant in tenants)
        return "attested" in states

    return verified


def _by_keys(signers: Iterable[Signer]) -> Verified:
    """Check for a signature of one of these keys: a pod has the keys of its step, and maybe no policy."""
    keys = {signer.id: PublicKey(signer.id, signer.key.public_key()) for signer in signers}

    def verified(envelope: Envelope, statement: Statement) -> bool:
        by_these = (signature for signature in envelope.signatures if signature.key in keys)
        return any(verify_signature(envelope, signature, keys[signature.key]) for signature in by_these)

    return verified


def _signers_at_hand() -> Iterator[Signer]:
    """The keys in the folder that can be loaded, as a step may have only its own; rotated keys were deleted."""
    for role in ROLES:
        with suppress(ConfigError):
            yield load_signer(role)
