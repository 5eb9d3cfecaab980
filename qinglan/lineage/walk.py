"""The walk from an artifact back to what was given, by digest; nothing is believed but signatures and bytes.

graph = walk([digest], RunFolder(Path("runs/demo/fivedoctors")), policy, tenant="fivedoctors")
"""

from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

from qinglan.lineage.digest_check import DigestCheck, check_digests
from qinglan.lineage.evidence_source import Evidence, garbage_collection_paused
from qinglan.lineage.findings import Finding, State
from qinglan.lineage.graph import ArtifactNode, Graph, Step, worst_state
from qinglan.lineage.statement import UNKNOWN_ALGORITHM, ArtifactRef, algorithm_fault
from qinglan.lineage.statement_index import StatementIndex, index_statements, maker_of
from qinglan.lineage.trust import TrustPolicy

MAX_CLOCK_DIFFERENCE = timedelta(seconds=5)
"""How far the clocks of two machines that sign may differ."""

BLAMED: tuple[State, ...] = ("altered", "untrusted")


class ProvenanceChain(NamedTuple):
    parts: dict[str, ArtifactRef]
    """Everything in the chain by digest, as it was first named; what is used before what uses it."""

    makers: dict[str, str]
    """Ids of steps by digest; none for what nobody made."""

    loops: frozenset[str]
    """Steps that use what was made of their own work."""


def walk(
    starts: Iterable[str],
    evidence: Evidence,
    policy: TrustPolicy,
    tenant: str,
    *,
    now: datetime | None = None,
    until: datetime | None = None,
) -> Graph:
    """The starts and all they come from, each with its state. `until`: nothing in the chain is younger."""
    with garbage_collection_paused():
        wanted, now = tuple(dict.fromkeys(starts)), now or datetime.now(UTC)
        return _build_graph(wanted, evidence, policy, tenant, now, until)


def _build_graph(
    wanted: tuple[str, ...],
    evidence: Evidence,
    policy: TrustPolicy,
    tenant: str,
    now: datetime,
    until: datetime | None,
) -> Graph:
    claims = index_statements(evidence.statements(), policy, tenant, now)
    reached = collect_chain(wanted, claims)
    steps = {name: claims.steps[name] for name in dict.fromkeys(reached.makers.values()) if name}
    steps = {name: _check_times(step, reached, steps, until) for name, step in steps.items()}
    hashable = {digest: part.name for digest, part in reached.parts.items()}
    sightings = check_digests(hashable, evidence)
    things = {
        digest: artifact_node(digest, reached, steps, claims, sightings.get(digest)) for digest in reached.parts
    }
    return Graph(wanted, things, steps, (*claims.findings, *unreferenced_file_findings(evidence, claims)))


def collect_chain(starts: Iterable[str], claims: StatementIndex) -> ProvenanceChain:
    """Depth first and without recursion: a chain may be thousands of steps long."""
    parts: dict[str, ArtifactRef] = {}
    makers: dict[str, str] = {}
    done: dict[str, ArtifactRef] = {}
    loops: set[str] = set()
    for start in starts:
        part = ArtifactRef(_made_name(start, claims), start, algorithm=UNKNOWN_ALGORITHM)
        stack = [_enter(part, parts, makers, claims)] if start not in parts else []
        while stack:
            part, ahead = stack[-1]
            following = next(ahead, None)
            if following is None:
                stack.pop()
                done[part.digest] = parts[part.digest]
            elif following.digest not in parts:
                stack.append(_enter(following, parts, makers, claims))
            elif following.digest not in done:
                loops |= _loop(following.digest, stack, makers)
    return ProvenanceChain(done, makers, frozenset(loops))


def artifact_node(
    digest: str,
    reached: ProvenanceChain,
    steps: Mapping[str, Step],
    claims: StatementIndex,
    sighting: DigestCheck | None,
) -> ArtifactNode:
    """What is to be thought of it: the worst of what its maker's statement and its bytes say."""
    part, maker = reached.parts[digest], steps.get(reached.makers[digest])
    made = next((one for one in maker.statement.made if one.digest == digest), part) if maker else part
    state, why = _statement_state(digest, maker, claims)
    where, size = made.uri, None
    if sighting:
        where, size = sighting.where, sighting.size
        if sighting.state != "verified" and worst_state([state, sighting.state]) == sighting.state:
            state, why = sighting.state, sighting.why
        elif (
            sighting.state == "verified" and made.is_bytes and (fault := algorithm_fault(made, Path(where).is_dir()))
        ):
            state, why = "altered", f"{where}: {fault}"
        elif state == "attested":
            state = sighting.state
    return ArtifactNode(
        digest, made.name, state, why, maker.id if maker else "", digest in claims.given or part.given, where, size,
        made.algorithm, {**part.about, **made.about} if part.about else made.about,
    )  # fmt: skip


def unreferenced_file_findings(evidence: Evidence, claims: StatementIndex) -> Iterator[Finding]:
    """Papers that no statement that counts names: somebody changed them, or put them there."""
    papers = {digest: path for path, digest in evidence.papers()}
    for step in (one for one in claims.steps.values() if papers and one.counts):
        for part in (*step.statement.made, *step.statement.used):
            papers.pop(part.digest, None)
    for path in papers.values():
        yield Finding(path.name, "altered", f"{path}: no statement names these bytes")


def _statement_state(digest: str, maker: Step | None, claims: StatementIndex) -> tuple[State, str]:
    """Without a look at the bytes."""
    if maker is not None:
        return maker.state, maker.why and f"statement of {maker.statement.stage}: {maker.why}"
    if digest in claims.given:
        return "attested", ""
    if digest in claims.doubtful and digest not in claims.named:
        return "untrusted", "given, says a statement that does not count"
    return "missing", "no statement says who made it, and none that it was given"


def _enter(
    part: ArtifactRef, parts: dict[str, ArtifactRef], makers: dict[str, str], claims: StatementIndex
) -> tuple[ArtifactRef, Iterator[ArtifactRef]]:
    parts[part.digest] = part
    makers[part.digest] = maker = maker_of(part.digest, claims)
    return part, iter(claims.steps[maker].statement.used if maker else ())


def _made_name(digest: str, claims: StatementIndex) -> str:
    maker = maker_of(digest, claims)
    made = claims.steps[maker].statement.made if maker else ()
    return next((part.name for part in made if part.digest == digest), digest[:12])


def _loop(digest: str, stack: list[tuple[ArtifactRef, Any]], makers: Mapping[str, str]) -> set[str]:
    """The steps from a thing that is still being walked back to itself."""
    on_it = [part.digest for part, _ in stack]
    return {makers[one] for one in on_it[on_it.index(digest) :] if makers[one]}


def _check_times(step: Step, reached: ProvenanceChain, steps: Mapping[str, Step], until: datetime | None) -> Step:
    """The step, found out where its times or its place in the chain are impossible."""
    if step.state in BLAMED:
        return step
    if step.id in reached.loops:
        return step._replace(state="altered", why="it uses what was made of its own work")
    if until is not None and step.done > until:
        why = f"it ended {step.done:%F %T}Z, after the release of {until:%F %T}Z"
        return step._replace(state="altered", why=why)
    latest = step.began + MAX_CLOCK_DIFFERENCE
    for part in step.statement.used:
        maker = reached.makers.get(part.digest, "")
        if maker and steps[maker].done > latest:
            why = f"it started {step.began:%F %T}Z, before {part.name} was made {steps[maker].done:%F %T}Z"
            return step._replace(state="altered", why=why)
    return step
