"""The walk from an artifact back to what was given, by digest; nothing is believed but signatures and bytes.

graph = walk([digest], RunFolder(Path("runs/demo/fivedoctors")), policy, tenant="fivedoctors")
"""

from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

from qinglan.lineage.claims import Claims, maker_of, read_claims
from qinglan.lineage.findings import Finding, State
from qinglan.lineage.graph import Graph, Step, Thing, worst
from qinglan.lineage.looking import Evidence, many_objects
from qinglan.lineage.sightings import Sighting, look
from qinglan.lineage.statement import UNLABELLED, Part, label_fault
from qinglan.lineage.trust import TrustPolicy

CLOCKS = timedelta(seconds=5)
"""How far the clocks of two machines that sign may differ."""

BLAMED: tuple[State, ...] = ("altered", "untrusted")


class Reached(NamedTuple):
    parts: dict[str, Part]
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
    with many_objects():
        wanted, now = tuple(dict.fromkeys(starts)), now or datetime.now(UTC)
        return _walked(wanted, evidence, policy, tenant, now, until)


def _walked(
    wanted: tuple[str, ...],
    evidence: Evidence,
    policy: TrustPolicy,
    tenant: str,
    now: datetime,
    until: datetime | None,
) -> Graph:
    claims = read_claims(evidence.statements(), policy, tenant, now)
    reached = reach(wanted, claims)
    steps = {name: claims.steps[name] for name in dict.fromkeys(reached.makers.values()) if name}
    steps = {name: _in_order(step, reached, steps, until) for name, step in steps.items()}
    hashable = {digest: part.name for digest, part in reached.parts.items()}
    sightings = look(hashable, evidence)
    things = {digest: thing(digest, reached, steps, claims, sightings.get(digest)) for digest in reached.parts}
    return Graph(wanted, things, steps, (*claims.findings, *strangers(evidence, claims)))


def reach(starts: Iterable[str], claims: Claims) -> Reached:
    """Depth first and without recursion: a chain may be thousands of steps long."""
    parts: dict[str, Part] = {}
    makers: dict[str, str] = {}
    done: dict[str, Part] = {}
    loops: set[str] = set()
    for start in starts:
        part = Part(_made_name(start, claims), start, algorithm=UNLABELLED)
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
    return Reached(done, makers, frozenset(loops))


def thing(
    digest: str, reached: Reached, steps: Mapping[str, Step], claims: Claims, sighting: Sighting | None
) -> Thing:
    """What is to be thought of it: the worst of what its maker's statement and its bytes say."""
    part, maker = reached.parts[digest], steps.get(reached.makers[digest])
    made = next((one for one in maker.statement.made if one.digest == digest), part) if maker else part
    state, why = _said(digest, maker, claims)
    where, size = made.uri, None
    if sighting:
        where, size = sighting.where, sighting.size
        if sighting.state != "verified" and worst([state, sighting.state]) == sighting.state:
            state, why = sighting.state, sighting.why
        elif sighting.state == "verified" and made.is_bytes and (fault := label_fault(made, Path(where).is_dir())):
            state, why = "altered", f"{where}: {fault}"
        elif state == "attested":
            state = sighting.state
    return Thing(
        digest, made.name, state, why, maker.id if maker else "", digest in claims.given or part.given, where, size,
        made.algorithm, {**part.about, **made.about} if part.about else made.about,
    )  # fmt: skip


def strangers(evidence: Evidence, claims: Claims) -> Iterator[Finding]:
    """Papers that no statement that counts names: somebody changed them, or put them there."""
    papers = {digest: path for path, digest in evidence.papers()}
    for step in (one for one in claims.steps.values() if papers and one.counts):
        for part in (*step.statement.made, *step.statement.used):
            papers.pop(part.digest, None)
    for path in papers.values():
        yield Finding(path.name, "altered", f"{path}: no statement names these bytes")


def _said(digest: str, maker: Step | None, claims: Claims) -> tuple[State, str]:
    """Without a look at the bytes."""
    if maker is not None:
        return maker.state, maker.why and f"statement of {maker.statement.stage}: {maker.why}"
    if digest in claims.given:
        return "attested", ""
    if digest in claims.doubtful and digest not in claims.named:
        return "untrusted", "given, says a statement that does not count"
    return "missing", "no statement says who made it, and none that it was given"


def _enter(part: Part, parts: dict[str, Part], makers: dict[str, str], claims: Claims) -> tuple[Part, Iterator[Part]]:
    parts[part.digest] = part
    makers[part.digest] = maker = maker_of(part.digest, claims)
    return part, iter(claims.steps[maker].statement.used if maker else ())


def _made_name(digest: str, claims: Claims) -> str:
    maker = maker_of(digest, claims)
    made = claims.steps[maker].statement.made if maker else ()
    return next((part.name for part in made if part.digest == digest), digest[:12])


def _loop(digest: str, stack: list[tuple[Part, Any]], makers: Mapping[str, str]) -> set[str]:
    """The steps from a thing that is still being walked back to itself."""
    on_it = [part.digest for part, _ in stack]
    return {makers[one] for one in on_it[on_it.index(digest) :] if makers[one]}


def _in_order(step: Step, reached: Reached, steps: Mapping[str, Step], until: datetime | None) -> Step:
    """The step, found out where its times or its place in the chain are impossible."""
    if step.state in BLAMED:
        return step
    if step.id in reached.loops:
        return step._replace(state="altered", why="it uses what was made of its own work")
    if until is not None and step.done > until:
        why = f"it ended {step.done:%F %T}Z, after the release of {until:%F %T}Z"
        return step._replace(state="altered", why=why)
    latest = step.began + CLOCKS
    for part in step.statement.used:
        maker = reached.makers.get(part.digest, "")
        if maker and steps[maker].done > latest:
            why = f"it started {step.began:%F %T}Z, before {part.name} was made {steps[maker].done:%F %T}Z"
            return step._replace(state="altered", why=why)
    return step
