"""Statements as they were found, each opened, verified and read once."""

import hashlib
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import NamedTuple

from qinglan.errors import DataError
from qinglan.lineage.dsse import IN_TOTO, Envelope, open_envelope
from qinglan.lineage.findings import Finding, State
from qinglan.lineage.graph import RELEASE_STAGE, Step
from qinglan.lineage.keys import Role
from qinglan.lineage.statement import Statement, from_payload, parse_time
from qinglan.lineage.trust import TrustPolicy

MAX_CLOCK_AHEAD = timedelta(minutes=1)
"""How far a signer's clock may be ahead of the auditor's."""

BREAK_GLASS = "urn:qinglan:break-glass:v1"


class StatementIndex(NamedTuple):
    steps: dict[str, Step]
    """By id."""

    makers: dict[str, list[str]]
    """Who says to have made a digest. What a step only carried on, as a release does its model, it has not made."""

    given: frozenset[str]
    """Digests that a statement which counts says nobody in the house made."""

    named: frozenset[str]
    """Digests that such a statement uses at all."""

    doubtful: frozenset[str]
    """Digests that are given, says a statement that does not count."""

    findings: tuple[Finding, ...]


def index_statements(
    found: Iterable[tuple[str, bytes]],
    policy: TrustPolicy,
    tenant: str,
    now: datetime,
) -> StatementIndex:
    """Every statement once; what claims to be one and is not, or was changed, is a finding."""
    steps: dict[str, Step] = {}
    faults: list[Finding] = []
    for where, sealed in found:
        name = hashlib.sha256(sealed).hexdigest()
        if name in steps:
            continue
        try:
            envelope = open_envelope(sealed, where)
            if is_break_glass(envelope):
                continue
            step = read_step(name, where, envelope, policy, tenant, now)
        except DataError as error:
            faults.append(Finding(f"statement {where.rpartition('/')[2]}", "altered", str(error)))
            continue
        steps[name] = step
        if step.state == "altered":
            faults.append(Finding(f"statement of {step.statement.stage}", "altered", f"{where}: {step.why}"))
    return _build_index(steps, faults)


def read_step(
    name: str,
    where: str,
    envelope: Envelope,
    policy: TrustPolicy,
    tenant: str,
    now: datetime,
) -> Step:
    statement = from_payload(envelope.payload, where)
    if fault := shape_fault(statement):
        raise DataError(f"{where}: no statement of a stage ({fault}).")
    try:
        started, ended = parse_time(statement.started), parse_time(statement.ended)
    except DataError as error:
        return Step(name, statement, "altered", str(error), "", where)
    role: Role = "releaser" if statement.stage == RELEASE_STAGE else "builder"
    state, why, signer = verify_signatures(envelope, policy, role, tenant, ended)
    if state == "attested" and (why := time_fault(started, ended, now)):
        state = "altered"
    return Step(name, statement, state, why, signer, where, started, ended)


def verify_signatures(
    envelope: Envelope, policy: TrustPolicy, role: Role, tenant: str, at: datetime
) -> tuple[State, str, str]:
    """What the signatures over a statement are worth, why, and whose they are, or claim to be."""
    claimed = next((one.key for one in envelope.signatures), "")
    if envelope.payload_type != IN_TOTO:
        return "untrusted", f"its payload is a {envelope.payload_type!r}", claimed
    state, why, key = policy.worth(envelope, role, tenant, at)
    return state, why, key or claimed


def time_fault(started: datetime, ended: datetime, now: datetime) -> str:
    """Why these times cannot be; "" where they can."""
    if started > ended:
        return f"it says that it ended {ended:%F %T}Z, before it started {started:%F %T}Z"
    if ended > now + MAX_CLOCK_AHEAD:
        return f"it says that it ended {ended:%F %T}Z, which is yet to come"
    return ""


def shape_fault(statement: Statement) -> str:
    """What is no mapping or no text where one belongs: whoever wrote the file may have meant harm."""
    if not all(isinstance(one, dict) for one in (statement.config, statement.facts, statement.versions)):
        return "config, facts or versions is no mapping"
    for parts in (statement.made, statement.used):
        for part in parts:
            if not (isinstance(part.about, dict) and isinstance(part.uri, str)):
                return f"{part.name} is described by no mapping"
    return ""


def is_break_glass(envelope: Envelope) -> bool:
    """Overrides lie among statements; they are read on their own."""
    return BREAK_GLASS.encode() in envelope.payload[:300]


def _build_index(steps: dict[str, Step], faults: list[Finding]) -> StatementIndex:
    makers: dict[str, list[str]] = {}
    given: set[str] = set()
    named: set[str] = set()
    doubtful: set[str] = set()
    for name, step in steps.items():
        used = {part.digest for part in step.statement.used}
        for part in step.statement.made:
            if part.digest not in used and not _carried(step, part.name):
                makers.setdefault(part.digest, []).append(name)
        if step.counts:
            named |= used
        roots = given if step.counts else doubtful
        for part in step.statement.used:
            if part.about and part.given:
                roots.add(part.digest)
    return StatementIndex(steps, makers, frozenset(given), frozenset(named), frozenset(doubtful), tuple(faults))


def _carried(step: Step, name: str) -> bool:
    """A release's lineage is a copy of what steps before it have written and used."""
    return step.statement.stage == RELEASE_STAGE and name.startswith("lineage/")


def maker_of(digest: str, claims: StatementIndex) -> str:
    """The step that made it, by id: one that counts before one that does not, the first before a later one.

    Several may have: the same stage again, on the same bytes. What is given needs none that does not count.
    """
    makers = claims.makers.get(digest, ())
    if not makers:
        return ""
    found = makers[0] if len(makers) == 1 else min(makers, key=lambda one: _rank(claims.steps[one]))
    return found if digest not in claims.given or claims.steps[found].counts else ""


def _rank(step: Step) -> tuple[bool, datetime, str]:
    return not step.counts, step.done, step.id
