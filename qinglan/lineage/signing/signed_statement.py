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
    """A statement in its envelope, unverified."""

    where: str
    digest: str
    """SHA-256 of the envelope, which is the id of the step."""

    envelope: Envelope
    statement: Statement

    @property
    def file(self) -> str:
        return Path(self.where).name


def parse_signed_statement(sealed: bytes, where: str) -> SignedStatement:
    """Parse an envelope and its statement; a DataError if either is malformed or the end time is not a time."""
    envelope = open_envelope(sealed, where)
    statement = from_payload(envelope.payload, where)
    parse_time(statement.ended)
    return SignedStatement(where, sha256_bytes(sealed), envelope, statement)


def read_signed_statement(path: Path) -> SignedStatement:
    return parse_signed_statement(read_plain(path), str(path))


def read_lineage(lineage: Path) -> list[SignedStatement]:
    """Read all statements of the folder, oldest first; a DataError if a file is not a statement."""
    statements = [read_signed_statement(path) for path in lineage.glob(f"*{ENVELOPE_SUFFIX}")]
    return sorted(statements, key=lambda item: (item.statement.at, item.where))


def signing_role(statement: Statement) -> Role:
    return "releaser" if statement.stage == RELEASE_STAGE else "builder"


def verify_statement(item: SignedStatement, policy: TrustPolicy, tenant: str) -> tuple[State, str, str]:
    """Call `verify_signatures` with the role that signs this stage's statements, and the time in the statement."""
    return verify_signatures(item.envelope, policy, signing_role(item.statement), tenant, item.statement.at)


def verify_signatures(
    envelope: Envelope, policy: TrustPolicy, role: Role, tenant: str, at: datetime
) -> tuple[State, str, str]:
    """State that the signatures give a statement, the reason, and the key that signed it or claims to."""
    claimed = next((signature.key for signature in envelope.signatures), "")
    if envelope.payload_type != IN_TOTO:
        return "untrusted", f"its payload is a {envelope.payload_type!r}", claimed
    state, why, key = policy.check_signatures(envelope, role, tenant, at)
    return state, why, key or claimed
