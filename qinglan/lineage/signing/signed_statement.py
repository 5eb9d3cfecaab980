"""Read a signed statement, and verify that a trusted key signed it.

step = read_signed_statement(Path("lineage/sft-0123456789ab.dsse.json"))
state, why, key = verify_statement(step, policy, "fivedoctors")
"""

from datetime import datetime
from pathlib import Path
from typing import NamedTuple

from qinglan.files.files import sha256_bytes
from qinglan.files.plain_files import read_plain
from qinglan.lineage.signing.dsse import ENVELOPE_SUFFIX, IN_TOTO, Envelope, open_envelope
from qinglan.lineage.signing.findings import State
from qinglan.lineage.signing.keys import Role
from qinglan.lineage.signing.statement import RELEASE_STAGE, Statement, from_payload, parse_time
from qinglan.lineage.signing.trust import TrustPolicy


class SignedStatement(NamedTuple):
    """A parsed statement with its envelope, whose signatures are not verified yet."""

    where: str
    digest: str
    """SHA-256 of the envelope; it is used as the id of the step."""

    envelope: Envelope
    statement: Statement

    @property
    def file(self) -> str:
        return Path(self.where).name


def parse_signed_statement(sealed: bytes, where: str) -> SignedStatement:
    """Parse an envelope and its statement; raises a DataError if one of them or the end time is malformed."""
    envelope = open_envelope(sealed, where)
    statement = from_payload(envelope.payload, where)
    parse_time(statement.ended)
    return SignedStatement(where, sha256_bytes(sealed), envelope, statement)


def read_signed_statement(path: Path) -> SignedStatement:
    return parse_signed_statement(read_plain(path), str(path))


def read_lineage(lineage: Path) -> list[SignedStatement]:
    """Read all statements in the folder, oldest first; raises a DataError if one is malformed."""
    statements = [read_signed_statement(path) for path in lineage.glob(f"*{ENVELOPE_SUFFIX}")]
    return sorted(statements, key=lambda item: (item.statement.at, item.where))


def signing_role(statement: Statement) -> Role:
    return "releaser" if statement.stage == RELEASE_STAGE else "builder"


def verify_statement(item: SignedStatement, policy: TrustPolicy, tenant: str) -> tuple[State, str, str]:
    """Verify a statement's signatures for its stage's signing role, at the end time that the statement claims."""
    return verify_signatures(item.envelope, policy, signing_role(item.statement), tenant, item.statement.at)


def verify_signatures(
    envelope: Envelope, policy: TrustPolicy, role: Role, tenant: str, at: datetime
) -> tuple[State, str, str]:
    """Verify an envelope. Returns its state, the reason, and the id of the trusted key or else the claimed key."""
    claimed = next((signature.key for signature in envelope.signatures), "")
    if envelope.payload_type != IN_TOTO:
        return "untrusted", f"its payload is a {envelope.payload_type!r}", claimed
    state, why, key = policy.check_signatures(envelope, role, tenant, at)
    return state, why, key or claimed
