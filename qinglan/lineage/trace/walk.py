"""Walk from an artifact back to the external inputs, by digest; only signatures and bytes are trusted.

graph = walk([digest], RunFolder(Path("runs/demo/fivedoctors")), policy, tenant="fivedoctors")
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from qinglan.files.digests import FILE_ALGORITHM
from qinglan.lineage.signing.findings import FAULTS, GRAVE, Finding, State, worst_state
from qinglan.lineage.signing.statement import RELEASE_STAGE, UNKNOWN_ALGORITHM, ArtifactRef, algorithm_fault
from qinglan.lineage.signing.statement_index import (
    MAX_CLOCK_AHEAD,
    MAX_CLOCK_DIFFERENCE,
    StatementIndex,
    Step,
    exchanged_reason,
    first_made,
    future_finding,
    index_statements,
    maker_of,
)
from qinglan.lineage.signing.trust import TrustPolicy
from qinglan.lineage.trace.digest_check import DigestCheck, check_digests
from qinglan.lineage.trace.evidence import Evidence
from qinglan.lineage.trace.release_folder import MODEL, paper_faults


class ArtifactNode(NamedTuple):
    digest: str
    name: str
    state: State
    why: str
    step: str = ""
    """Id of the step that made the artifact; empty if no step is known."""

    external: bool = False
    """True for an external input, which no step made."""

    where: str = ""
    """Path at which the bytes were checked; if they were not checked, the address in the statement."""

    size: int | None = None
    algorithm: str = FILE_ALGORITHM
    about: Mapping[str, Any] = {}


class Graph(NamedTuple):
    starts: tuple[str, ...]
    things: Mapping[str, ArtifactNode]
    """Artifacts by digest: `starts` and all artifacts from which they were made. Inputs come before outputs."""

    steps: Mapping[str, Step]
    findings: tuple[Finding, ...] = ()
    """Findings about dates in the future, changed statements, and supporting files that no statement names."""

    counts_from: datetime | None = None
    """Latest date in the future of a statement in the chain, from which on the chain is trusted; None without one."""

    def used(self, thing: ArtifactNode) -> tuple[ArtifactRef, ...]:
        """Return the inputs of the step that made the artifact."""
        return self.steps[thing.step].statement.used if thing.step else ()

    def inputs(self, digest: str) -> Iterator[str]:
        """Return the digests of the inputs of the step that made the artifact; empty if no step is known."""
        thing = self.things.get(digest)
        return (part.digest for part in (self.used(thing) if thing else ()))


class ProvenanceChain(NamedTuple):
    parts: dict[str, ArtifactRef]
    """Artifacts of the chain by digest. Inputs come before their outputs."""

    makers: dict[str, str]
    """Id of the step that made each artifact, by digest; empty if no step made it."""

    loops: frozenset[str]
    """Ids of steps that use an artifact which was made from their own output."""


def walk(
    starts: Iterable[str],
    evidence: Evidence,
    policy: TrustPolicy,
    tenant: str,
    *,
    now: datetime | None = None,
    until: datetime | None = None,
) -> Graph:
    """Return the artifacts `starts` and all artifacts from which they were made, each with its state.

    A step that ended after `until`, the time of the release, is marked altered. All statements that are dated in the
    future give one finding. The rest of the graph is computed as of the newest of these dates, so that one wrong
    clock does not mark the whole chain as altered.
    """
    now = now or datetime.now(UTC)
    starts = tuple(dict.fromkeys(starts))
    newest_steps = evidence.newest_steps()
    index = index_statements(evidence.statements(), policy, tenant, now, newest_steps)
    chain = collect_chain(starts, index)
    ahead = [step for step in steps_of(chain, index).values() if step.is_ahead]
    future = future_finding(ahead, now)
    newest = max((step.done for step in ahead), default=None)
    # The statements are read again as of that date, so that they count and every other fault still shows.
    if newest:
        index = index_statements(evidence.statements(), policy, tenant, newest - MAX_CLOCK_AHEAD, newest_steps)
        chain = collect_chain(starts, index)
    steps = steps_of(chain, index)
    steps = {step_id: _check_times(step, chain, steps, index, until) for step_id, step in steps.items()}
    counting = (step.statement for step in index.steps.values() if step.is_trusted)
    signed = {part.digest for statement in counting for part in (*statement.made, *statement.used)}
    checks = check_digests(chain.parts, evidence, signed)
    things = {digest: artifact_node(digest, chain, steps, index, checks.get(digest)) for digest in chain.parts}
    # Supporting files that no trusted statement names under their name were changed, exchanged or added.
    papers = {str(path): digest for path, digest in evidence.papers()}
    trusted = [step.statement for step in index.steps.values() if step.is_trusted or step.is_ahead]
    faults = paper_faults(trusted, papers) if papers else {}
    altered = (Finding(path, "altered", why) for path, why in faults.items())
    findings = (*((future,) if future else ()), *index.findings, *altered)
    return Graph(starts, things, steps, findings, newest)


def collect_chain(starts: Iterable[str], index: StatementIndex) -> ProvenanceChain:
    """Collect all artifacts from which `starts` were made, depth first. A stack is used, since chains can be long."""
    parts: dict[str, ArtifactRef] = {}
    makers: dict[str, str] = {}
    # A part is added when all its inputs are in it, so inputs come first, as in the graph.
    done: dict[str, ArtifactRef] = {}
    loops: set[str] = set()

    def enter(part: ArtifactRef) -> tuple[ArtifactRef, Iterator[ArtifactRef]]:
        parts[part.digest] = part
        makers[part.digest] = maker = maker_of(part.digest, index)
        return part, iter(index.steps[maker].statement.used if maker else ())

    for start in starts:
        part = ArtifactRef(_output_name(start, index), start, algorithm=UNKNOWN_ALGORITHM)
        stack = [enter(part)] if start not in parts else []
        while stack:
            part, inputs = stack[-1]
            following = next(inputs, None)
            if following is None:
                stack.pop()
                done[part.digest] = parts[part.digest]
            elif following.digest not in parts:
                stack.append(enter(following))
            elif following.digest not in done:  # it is still on the stack: a circle
                digests = [entered.digest for entered, _ in stack]
                loops.update(makers[digest] for digest in digests[digests.index(following.digest) :])
    return ProvenanceChain(done, makers, frozenset(loops - {""}))


def steps_of(chain: ProvenanceChain, index: StatementIndex) -> dict[str, Step]:
    return {step_id: index.steps[step_id] for step_id in dict.fromkeys(chain.makers.values()) if step_id}


def artifact_node(
    digest: str,
    chain: ProvenanceChain,
    steps: Mapping[str, Step],
    index: StatementIndex,
    check: DigestCheck | None,
) -> ArtifactNode:
    """Build the node of an artifact. Its state is the worse one of its maker's statement and of its bytes."""
    part, maker = chain.parts[digest], steps.get(chain.makers[digest])
    output = next((part for part in maker.statement.made if part.digest == digest), part) if maker else part
    state, why = _statement_state(digest, maker, index)
    where, size = output.uri, None
    if check:
        where, size = check.where, check.size
        verified = check.state == "verified"
        fault = algorithm_fault(output, Path(where).is_dir()) if verified and output.is_bytes else ""
        if not verified and worst_state([state, check.state]) == check.state:
            state, why = check.state, check.why
        elif fault:
            state, why = "altered", f"{where}: {fault}"
        elif state == "attested":
            state = check.state
    return ArtifactNode(
        digest,
        output.name,
        state,
        why,
        maker.id if maker else "",
        digest in index.external or part.is_external,
        where,
        size,
        output.algorithm,
        {**part.about, **output.about} if part.about else output.about,
    )


def findings_of(graph: Graph) -> Iterator[Finding]:
    """Yield a finding for each artifact that is neither verified nor attested, then the graph's other findings."""
    for thing in graph.things.values():
        if thing.state in FAULTS:
            yield Finding(f"{thing.name} {thing.digest[:12]}", thing.state, thing.why)
    yield from graph.findings


def steps_by_time(graph: Graph) -> list[Step]:
    return sorted(graph.steps.values(), key=lambda step: (step.statement.ended, step.statement.started, step.id))


def stage_steps(graph: Graph) -> dict[str, Step]:
    """Return one step per stage: the last step in the released model's own chain, or else the last step of all."""
    steps = {step.statement.stage: step for step in steps_by_time(graph)}
    release = steps.get(RELEASE_STAGE)
    models = [part.digest for part in release.statement.made if part.name == MODEL] if release else []
    ancestor_steps = {thing.step for digest in ancestors(models, graph.inputs) if (thing := graph.things.get(digest))}
    return steps | {step.statement.stage: step for step in steps_by_time(graph) if step.id in ancestor_steps}


def ancestors(digests: Iterable[str], inputs: Callable[[str], Iterable[str]]) -> Iterator[str]:
    """Yield these digests and all digests from which they were made, each once. `inputs` returns direct inputs."""
    waiting, known = list(digests), set[str]()
    while waiting:
        if (digest := waiting.pop()) not in known:
            known.add(digest)
            yield digest
            waiting += inputs(digest)


def _statement_state(digest: str, maker: Step | None, index: StatementIndex) -> tuple[State, str]:
    """Return an artifact's state and its reason according to the statements, before the bytes are compared."""
    if maker is not None:
        return maker.state, maker.why and f"statement of {maker.statement.stage}: {maker.why}"
    if digest in index.external:
        return "attested", ""
    if digest in index.doubtful and digest not in index.inputs:
        return "untrusted", "only an untrusted statement names it as an external input"
    if why := exchanged_reason(digest, index):
        return "altered", why
    return "missing", "no statement says which step made it, or that it is an external input"


def _output_name(digest: str, index: StatementIndex) -> str:
    """Return the name that the artifact's maker gives it; if no step made it, the name under which a step used it."""
    maker = maker_of(digest, index)
    outputs = index.steps[maker].statement.made if maker else ()
    names = [part.name for part in outputs if part.digest == digest]
    names += [name for name, _ in index.inputs.get(digest, ())]
    return names[0] if names else digest[:12]


def _check_times(
    step: Step, chain: ProvenanceChain, steps: Mapping[str, Step], index: StatementIndex, until: datetime | None
) -> Step:
    """Return the step, marked altered if its times or its position in the chain are impossible."""
    if step.state in GRAVE:
        return step
    if step.id in chain.loops:
        return step._replace(state="altered", why="it uses something that was made from its own output")
    if until is not None and step.done > until:
        why = f"it ended {step.done:%F %T}Z, after the release of {until:%F %T}Z"
        return step._replace(state="altered", why=why)
    # Another machine's clock may be a few seconds behind that of the maker.
    latest = step.began + MAX_CLOCK_DIFFERENCE
    for part in step.statement.used:
        maker = chain.makers.get(part.digest, "")
        since = first_made(part.digest, steps[maker], index) if maker else None
        if since is not None and since > latest:
            why = f"it started {step.began:%F %T}Z, before {part.name} was made {since:%F %T}Z"
            return step._replace(state="altered", why=why)
    return step
