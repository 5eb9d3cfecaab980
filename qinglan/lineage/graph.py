"""What an audit saw: things by digest, the steps that made them, and what each is worth."""

from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, Literal, NamedTuple

from qinglan.lineage.findings import Finding, State
from qinglan.lineage.statement import ArtifactRef, Statement

AuditVerdict = Literal["intact", "incomplete", "altered"]
WORST_FIRST: tuple[State, ...] = ("altered", "untrusted", "missing", "attested", "verified")
NEVER = datetime.min.replace(tzinfo=UTC)
RELEASE_STAGE = "release"
"""The one stage whose statement a releaser signs."""


class ArtifactNode(NamedTuple):
    digest: str
    name: str
    state: State
    why: str
    step: str = ""
    """The step that made it, by id; none where the chain ends."""

    given: bool = False
    """Nobody in the house made it."""

    where: str = ""
    """Where its bytes were looked at; or the address that its statement names."""

    size: int | None = None
    algorithm: str = "sha256"
    about: Mapping[str, Any] = {}


class Step(NamedTuple):
    id: str
    """SHA-256 of its envelope."""

    statement: Statement
    state: State
    """attested: its signature counts, for this tenant and at the time that it names."""

    why: str
    signer: str
    """The key that counts; else the one that it claims."""

    where: str

    began: datetime = NEVER
    done: datetime = NEVER
    """When it started and ended, as it says."""

    @property
    def counts(self) -> bool:
        return self.state == "attested"


class Graph(NamedTuple):
    starts: tuple[str, ...]
    things: Mapping[str, ArtifactNode]
    """By digest: the starts and all that they come from, what is used before what uses it."""

    steps: Mapping[str, Step]
    findings: tuple[Finding, ...] = ()
    """Of what is no thing in the chain: statements that were changed, papers that nobody knows."""

    def used(self, thing: ArtifactNode) -> tuple[ArtifactRef, ...]:
        """What the step that made it used."""
        return self.steps[thing.step].statement.used if thing.step else ()


def worst_state(states: Iterable[State]) -> State:
    """The one that counts for all; verified where there is none."""
    return min(states, key=WORST_FIRST.index, default="verified")


def verdict_of(states: Iterable[State]) -> AuditVerdict:
    state = worst_state(states)
    return "altered" if state in ("altered", "untrusted") else "incomplete" if state == "missing" else "intact"


def findings_of(graph: Graph) -> Iterator[Finding]:
    """Everything in the chain that is neither verified nor attested, in words."""
    for thing in graph.things.values():
        if thing.state not in ("verified", "attested"):
            yield Finding(f"{thing.name} {thing.digest[:12]}", thing.state, thing.why)
    yield from graph.findings


def stages_of(graph: Graph) -> tuple[str, ...]:
    """Of all steps in the chain, each once, in the order of time."""
    return tuple(dict.fromkeys(one.statement.stage for one in steps_by_time(graph)))


def steps_by_time(graph: Graph) -> list[Step]:
    return sorted(graph.steps.values(), key=lambda one: (one.statement.ended, one.statement.started, one.id))
