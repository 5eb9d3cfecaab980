"""Index of the evidence's statements, each parsed and verified once."""

import hashlib
import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from qinglan.clock import how_long
from qinglan.errors import DataError
from qinglan.lineage.signing.dsse import Envelope, open_envelope
from qinglan.lineage.signing.findings import Finding, State
from qinglan.lineage.signing.signed_statement import signing_role, verify_signatures
from qinglan.lineage.signing.statement import RELEASE_STAGE, Statement, from_payload, parse_time
from qinglan.lineage.signing.trust import TrustPolicy

MAX_CLOCK_AHEAD = timedelta(minutes=1)
"""Largest time by which a signer's clock may be ahead of the auditor's."""

BREAK_GLASS = "urn:qinglan:break-glass:v1"
DATES = "dates"
"""Name of the finding about signed statements that are dated in the future."""

MAX_CLOCK_DIFFERENCE = timedelta(seconds=5)
"""Largest difference between the clocks of two machines that sign."""

FOLD_INPUT = re.compile(r"^fold \d+ ")
"""Prefix that a cross-fitted evaluation puts before the names of a fold's artifacts."""

NEVER = datetime.min.replace(tzinfo=UTC)


class Step(NamedTuple):
    """A statement, and the state of its signature."""

    id: str
    """SHA-256 of the statement's envelope."""

    statement: Statement
    state: State
    """attested: a trusted key, which was valid at the statement's end time, signed it for this tenant."""

    why: str
    signer: str
    """Id of the trusted key that signed the statement; without a trusted key, the key id in its first signature."""

    where: str

    began: datetime = NEVER
    done: datetime = NEVER
    """Time at which the step ended, as its statement claims; `began` is the time at which it started."""

    is_ahead: bool = False
    """True if the signature is trusted but dated in the future. The step is trusted from that date on."""

    @property
    def is_trusted(self) -> bool:
        return self.state == "attested"


@dataclass(frozen=True)
class StatementIndex:
    newest: frozenset[str]
    """Ids of the newest step of each stage in the audited run."""

    steps: dict[str, Step] = field(default_factory=dict)
    """Steps by id."""

    findings: list[Finding] = field(default_factory=list)
    makers: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    """Ids of the steps that claim to have made an artifact, by its digest. Steps that only copied it are left out."""

    external: set[str] = field(default_factory=set)
    """Digests that a trusted statement names as external inputs."""

    doubtful: set[str] = field(default_factory=set)
    """Digests that an untrusted statement names as external inputs."""

    inputs: dict[str, list[tuple[str, Step]]] = field(default_factory=lambda: defaultdict(list))
    """Uses of each artifact by trusted steps, by digest: the artifact's name as an input, and the step."""

    outputs: dict[str, list[tuple[str, Step]]] = field(default_factory=lambda: defaultdict(list))
    """Outputs of trusted steps by name: the digest of each output, and the step that made the output."""

    def add(self, step: Step) -> None:
        self.steps[step.id] = step
        used = {part.digest for part in step.statement.used}
        for part in step.statement.made:
            # If a step both uses and makes an artifact, such as a release's copy of the model, it only passed it on.
            # A release's lineage holds copies of the files of earlier steps.
            copied = step.statement.stage == RELEASE_STAGE and part.name.startswith("lineage/")
            if part.digest not in used and not copied:
                self.makers[part.digest].append(step.id)
        if step.is_trusted:
            for part in step.statement.used:
                self.inputs[part.digest].append((FOLD_INPUT.sub("", part.name), step))
            for part in step.statement.made:
                self.outputs[part.name].append((part.digest, step))
        roots = self.external if step.is_trusted else self.doubtful
        roots.update(part.digest for part in step.statement.used if part.is_external)


def index_statements(
    envelopes: Iterable[tuple[str, bytes]],
    policy: TrustPolicy,
    tenant: str,
    now: datetime,
    newest: frozenset[str] = frozenset(),
) -> StatementIndex:
    """Read and verify each statement once. A file that is not a statement, or was changed, becomes a finding.

    `newest` holds the ids of the newest step of each stage in the audited run.
    """
    index = StatementIndex(newest)
    for where, sealed in envelopes:
        step_id = hashlib.sha256(sealed).hexdigest()
        if step_id in index.steps:
            continue
        try:
            envelope = open_envelope(sealed, where)
            if BREAK_GLASS.encode() in envelope.payload[:300]:
                continue  # an override, which release_notes.py reads
            step = _read_step(step_id, where, envelope, policy, tenant, now)
        except DataError as error:
            index.findings.append(Finding(f"statement {where.rpartition('/')[2]}", "altered", str(error)))
            continue
        index.add(step)
        if step.state == "altered" and not step.is_ahead:
            why = f"{where}: {step.why}"
            index.findings.append(Finding(f"statement of {step.statement.stage}", "altered", why))
    return index


def _read_step(step_id: str, where: str, envelope: Envelope, policy: TrustPolicy, tenant: str, now: datetime) -> Step:
    statement = from_payload(envelope.payload, where)
    try:
        started, ended = parse_time(statement.started), parse_time(statement.ended)
    except DataError as error:
        return Step(step_id, statement, "altered", str(error), "", where)
    state, why, signer = verify_signatures(envelope, policy, signing_role(statement), tenant, ended)
    # A fast clock can explain a date in the future, but not an end before the start, which stays a fault.
    is_ahead = state == "attested" and started <= ended > now + MAX_CLOCK_AHEAD
    if state == "attested" and (why := _time_fault(started, ended, now)):
        state = "altered"
    elif state == "attested" and (why := tenant_fault(statement, tenant)):
        state = "untrusted"
    return Step(step_id, statement, state, why, signer, where, started, ended, is_ahead)


def tenant_fault(statement: Statement, tenant: str) -> str:
    """Return why the statement belongs to another tenant; empty if it does not, or if no tenant is known."""
    if tenant and statement.tenant and statement.tenant != tenant:
        return f"it is of tenant {statement.tenant!r}, and {tenant!r} is asked about"
    return ""


def _time_fault(started: datetime, ended: datetime, now: datetime) -> str:
    if started > ended:
        return f"it says that it ended {ended:%F %T}Z, before it started {started:%F %T}Z"
    if ended > now + MAX_CLOCK_AHEAD:
        return (
            f"it is dated {how_long(ended - now)} in the future: it ended {ended:%F %T}Z, and it is {now:%F %T}Z now"
        )
    return ""


def future_finding(ahead: Sequence[Step], now: datetime) -> Finding | None:
    """Return one finding for all statements that are dated in the future, with advice; None if there are none."""
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


def exchanged_reason(digest: str, index: StatementIndex) -> str:
    """Explain why an artifact that no step made is a changed copy of a signed output; empty if it is not.

    It is a changed copy if a trusted step used it under the name of an output that an earlier trusted step had signed
    with other bytes.
    """
    uses = index.inputs.get(digest, ())
    for name, user in sorted(uses, key=lambda use: (use[1].began, use[0], use[1].id)):
        latest = user.began + MAX_CLOCK_DIFFERENCE
        # If a stage ran several times, the step should have used the output of its last run before the use.
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
    """Return the id of the step that made a digest; empty if no step made it.

    Several steps may have made the same bytes, for example if a stage ran twice or if steps wrote an empty file. Then
    trusted steps are preferred, next the newest steps of the audited run, next the step that ended first. Only a
    trusted step counts as the maker of an external input.
    """
    makers = [index.steps[step_id] for step_id in index.makers.get(digest, ())]
    if not makers:
        return ""
    maker = min(makers, key=lambda step: (not step.is_trusted, step.id not in index.newest, step.done, step.id))
    return maker.id if digest not in index.external or maker.is_trusted else ""


def first_made(digest: str, maker: Step, index: StatementIndex) -> datetime:
    """Return the earliest time at which `maker` or a trusted step made the bytes with this digest."""
    makers = (index.steps[step_id] for step_id in index.makers[digest])
    return min([maker.done, *(step.done for step in makers if step.is_trusted)])
