"""The statements of the evidence, each parsed and verified once."""

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from types import MappingProxyType
from typing import NamedTuple

from qinglan.clock import how_long
from qinglan.errors import DataError
from qinglan.lineage.signing.dsse import Envelope, open_envelope
from qinglan.lineage.signing.findings import Finding, State
from qinglan.lineage.signing.signed_statement import signing_role, verify_signatures
from qinglan.lineage.signing.statement import RELEASE_STAGE, Statement, from_payload, parse_time
from qinglan.lineage.signing.trust import TrustPolicy

MAX_CLOCK_AHEAD = timedelta(minutes=1)
"""How far a signer's clock may be ahead of the auditor's."""

BREAK_GLASS = "urn:qinglan:break-glass:v1"
DATES = "dates"
"""The name of the finding that signed statements are dated in the future."""

MAX_CLOCK_DIFFERENCE = timedelta(seconds=5)
"""How far the clocks of two machines that sign may differ."""

FOLD_INPUT = re.compile(r"^fold \d+ ")
"""The start of the names that a cross-fitted evaluation gives its folds' artifacts."""

NEVER = datetime.min.replace(tzinfo=UTC)


class Step(NamedTuple):
    """A statement, and the state of its signature."""

    id: str
    """SHA-256 of its envelope."""

    statement: Statement
    state: State
    """attested: a trusted key signed it, for this tenant and at the time that it names."""

    why: str
    signer: str
    """The trusted key that signed it; else the key that it claims."""

    where: str

    began: datetime = NEVER
    done: datetime = NEVER
    """When it started and ended, by its own statement."""

    is_ahead: bool = False
    """Its signature is trusted but dated in the future: the step is trusted once that time has come."""

    @property
    def is_trusted(self) -> bool:
        return self.state == "attested"


class StatementIndex(NamedTuple):
    steps: dict[str, Step]
    """By id."""

    makers: dict[str, list[str]]
    """Ids of the steps that claim to have made a digest, without steps that only passed it on."""

    external: frozenset[str]
    """Digests that a trusted statement names as external inputs."""

    named: frozenset[str]
    """Digests that a trusted statement uses."""

    doubtful: frozenset[str]
    """Digests that an untrusted statement names as external inputs."""

    findings: tuple[Finding, ...]
    newest: frozenset[str] = frozenset()
    """Ids of the steps that an audited run shows as its own."""

    inputs: Mapping[str, Sequence[tuple[str, Step]]] = MappingProxyType({})
    """Names of the inputs of trusted steps with the step that used them, by digest."""

    outputs: Mapping[str, Sequence[tuple[str, Step]]] = MappingProxyType({})
    """Digests of the outputs of trusted steps with the step that made them, by name."""


def index_statements(
    envelopes: Iterable[tuple[str, bytes]],
    policy: TrustPolicy,
    tenant: str,
    now: datetime,
    newest: frozenset[str] = frozenset(),
) -> StatementIndex:
    """Read each statement once; a file that is not one, or was changed, is a finding.

    `newest`: ids of the steps that an audited run shows as its own.
    """
    steps: dict[str, Step] = {}
    findings: list[Finding] = []
    for where, sealed in envelopes:
        step_id = hashlib.sha256(sealed).hexdigest()
        if step_id in steps:
            continue
        try:
            envelope = open_envelope(sealed, where)
            if BREAK_GLASS.encode() in envelope.payload[:300]:
                continue  # an override, which release_notes.py reads
            step = _read_step(step_id, where, envelope, policy, tenant, now)
        except DataError as error:
            findings.append(Finding(f"statement {where.rpartition('/')[2]}", "altered", str(error)))
            continue
        steps[step_id] = step
        if step.state == "altered" and not step.is_ahead:
            findings.append(Finding(f"statement of {step.statement.stage}", "altered", f"{where}: {step.why}"))
    return _build_index(steps, findings, newest)


def _read_step(step_id: str, where: str, envelope: Envelope, policy: TrustPolicy, tenant: str, now: datetime) -> Step:
    statement = from_payload(envelope.payload, where)
    try:
        started, ended = parse_time(statement.started), parse_time(statement.ended)
    except DataError as error:
        return Step(step_id, statement, "altered", str(error), "", where)
    state, why, signer = verify_signatures(envelope, policy, signing_role(statement), tenant, ended)
    # Impossible times that are no matter of a fast clock (an end before the start) stay faults for good.
    is_ahead = state == "attested" and started <= ended > now + MAX_CLOCK_AHEAD
    if state == "attested" and (why := _time_fault(started, ended, now)):
        state = "altered"
    elif state == "attested" and (why := tenant_fault(statement, tenant)):
        state = "untrusted"
    return Step(step_id, statement, state, why, signer, where, started, ended, is_ahead)


def tenant_fault(statement: Statement, tenant: str) -> str:
    """Why the statement is not this tenant's; "" if it is, or no tenant is known."""
    if tenant and statement.tenant and statement.tenant != tenant:
        return f"it is of tenant {statement.tenant!r}, and {tenant!r} is asked about"
    return ""


def _time_fault(started: datetime, ended: datetime, now: datetime) -> str:
    """Why these times are impossible; "" if they are possible."""
    if started > ended:
        return f"it says that it ended {ended:%F %T}Z, before it started {started:%F %T}Z"
    if ended > now + MAX_CLOCK_AHEAD:
        return (
            f"it is dated {how_long(ended - now)} in the future: it ended {ended:%F %T}Z, and it is {now:%F %T}Z now"
        )
    return ""


def future_finding(ahead: Sequence[Step], now: datetime) -> Finding | None:
    """One finding for all statements dated in the future: by how much, and what to do; None without any."""
    if not ahead:
        return None
    newest = max(step.done for step in ahead)
    return Finding(
        DATES,
        "altered",
        f"signed statements dated up to {how_long(newest - now)} in the future: {len(ahead)} (it is {now:%F %T}Z "
        "here). If this machine's clock is behind, set it. If a clock was ahead there, they are trusted from "
        f"{newest:%F %T}Z on: wait, or set that clock and run the same command again. If the keys were made under "
        "that clock as well, as a first run makes them, run `qinglan keys rotate builder` and `qinglan keys rotate "
        "releaser` before, since no step is dated before its key. The command signs each step with the right date, "
        "pays for no answer twice and repeats no finished training; on a cluster see docs/audit.md. If no clock was "
        "ahead, somebody made the dates up",
    )


def _build_index(steps: dict[str, Step], findings: list[Finding], newest: frozenset[str]) -> StatementIndex:
    makers: dict[str, list[str]] = {}
    external: set[str] = set()
    named: set[str] = set()
    doubtful: set[str] = set()
    inputs: dict[str, list[tuple[str, Step]]] = {}
    outputs: dict[str, list[tuple[str, Step]]] = {}
    for step_id, step in steps.items():
        used = {part.digest for part in step.statement.used}
        for part in step.statement.made:
            # What a step both uses and makes, such as a release's copy of the model, it has only passed on. A
            # release's lineage is a copy of what steps before it have written and used.
            copied = step.statement.stage == RELEASE_STAGE and part.name.startswith("lineage/")
            if part.digest not in used and not copied:
                makers.setdefault(part.digest, []).append(step_id)
        if step.is_trusted:
            named |= used
            for part in step.statement.used:
                inputs.setdefault(part.digest, []).append((FOLD_INPUT.sub("", part.name), step))
            for part in step.statement.made:
                outputs.setdefault(part.name, []).append((part.digest, step))
        roots = external if step.is_trusted else doubtful
        roots.update(part.digest for part in step.statement.used if part.is_external)
    return StatementIndex(
        steps,
        makers,
        frozenset(external),
        frozenset(named),
        frozenset(doubtful),
        tuple(findings),
        newest,
        inputs,
        outputs,
    )


def exchanged_reason(digest: str, index: StatementIndex) -> str:
    """Why bytes that no step made differ from the artifact for which a step took them; "" if they do not.

    A trusted step took them under the name of an output that a trusted step before it had signed with other bytes.
    """
    uses = index.inputs.get(digest, ())
    for name, user in sorted(uses, key=lambda use: (use[1].began, use[0], use[1].id)):
        latest = user.began + MAX_CLOCK_DIFFERENCE
        # Of a stage that ran again, the last run before the use is the one that the step should have taken.
        earlier = [
            output for output in index.outputs.get(name, ()) if output[1].done <= latest and output[1].id != user.id
        ]
        if earlier:
            signed, maker = max(earlier, key=lambda output: (output[1].done, output[1].id))
            return (
                f"{user.statement.stage} took it for {name}, which {maker.statement.stage} had signed with "
                f"digest {signed[:12]}: it was changed or exchanged between the two"
            )
    return ""


def maker_of(digest: str, index: StatementIndex) -> str:
    """The id of the step that made a digest; "" if none did.

    Several steps may have, such as a stage that ran twice, or any that wrote an empty file. A trusted step is chosen
    before others, then one of the audited run's newest, then the earliest. For an external input only a trusted step
    counts as its maker.
    """
    makers = [index.steps[step_id] for step_id in index.makers.get(digest, ())]
    if not makers:
        return ""
    maker = min(makers, key=lambda step: (not step.is_trusted, step.id not in index.newest, step.done, step.id))
    return maker.id if digest not in index.external or maker.is_trusted else ""


def first_made(digest: str, maker: Step, index: StatementIndex) -> datetime:
    """The earliest time at which the bytes are known to exist: `maker` may not be the first that made them."""
    makers = (index.steps[step_id] for step_id in index.makers[digest])
    return min([maker.done, *(step.done for step in makers if step.is_trusted)])
