"""Print an audit on a terminal, as a tree in which each artifact is expanded once; print descendants as lines."""

from collections.abc import Iterator, Sequence
from typing import IO, NamedTuple

from qinglan.lineage.auditing.audit import Audit, counts, judged_models_line, next_step
from qinglan.lineage.auditing.descendants import Descendant
from qinglan.lineage.release.release_notes import format_rollout
from qinglan.lineage.signing.findings import State
from qinglan.lineage.trace.walk import ArtifactNode, Graph
from qinglan.terminal import in_language, labelled, listed
from qinglan.terminal.console import Console, styled

MARKS: dict[State, tuple[str, str]] = {
    "verified": ("✓", "green"),
    "attested": ("◇", "blue"),
    "missing": ("?", "yellow"),
    "altered": ("✗", "red"),
    "untrusted": ("✗", "red"),
}
VERDICT_COLOURS = {"intact": "green", "incomplete": "yellow", "altered": "red"}
MAX_DEPTH = 60
"""Largest number of tree levels that are printed, since a chain may have thousands."""


class TreeLine(NamedTuple):
    depth: int
    thing: ArtifactNode
    again: bool
    """True if the artifact was printed further up."""


def tree_lines(graph: Graph) -> Iterator[TreeLine]:
    """Yield the tree's lines, depth first from the starts. A stack replaces recursion, since chains can be long."""
    shown: set[str] = set()
    opened: set[str] = set()
    stack = [(0, digest) for digest in reversed(graph.starts)]
    while stack:
        depth, digest = stack.pop()
        thing = graph.things[digest]
        yield TreeLine(depth, thing, digest in shown)
        # A step's inputs are printed once, below its first output: the graph has very many paths.
        if thing.step not in opened and digest not in shown:
            used = dict.fromkeys(part.digest for part in graph.used(thing) if part.digest != digest)
            stack.extend((depth + 1, child) for child in reversed(used))
        shown.add(digest)
        opened.add(thing.step)


def print_audit(audit: Audit, to: IO[str] | None = None) -> None:
    console = Console(file=to, highlight=False, soft_wrap=True)
    verdict = in_language(audit.verdict)
    verdict = verdict if audit.verdict == "intact" else verdict.upper()
    name = f"{audit.name} " if audit.name else ""
    verdict_style = f"bold {VERDICT_COLOURS[audit.verdict]}"
    console.print(styled(name, audit.digest[:12] or audit.target, " ", (verdict, verdict_style)))
    if judged := judged_models_line(audit):
        console.print(judged)
    for override in audit.overrides:
        missing = "; ".join(override.missing) or "nothing"
        text = f"BREAK-GLASS {override.at} by {override.by}: {override.reason} (missing then: {missing})"
        console.print(styled((in_language(text), "bold white on red")))
    for rollout in audit.rollouts:
        mark, colour = MARKS[rollout.state]
        console.print(styled((f"{mark} ", colour), in_language(format_rollout(rollout))))
    hidden = 0
    for line in tree_lines(audit.graph):
        if line.depth > MAX_DEPTH:
            hidden += 1
        else:
            thing = line.thing
            mark, colour = MARKS[thing.state]
            details = ["see above"] if line.again else _details(audit.graph, thing)
            about = listed([thing.digest[:12], *details])
            console.print(styled("  " * line.depth, (f"{mark} {thing.name} ", colour), (about, "dim")))
    if hidden:
        console.print(f"... and {hidden:,} more, deeper than {MAX_DEPTH} levels; --page or --json shows all")
    total = (f"{count:,} {in_language(state)}" for state, count in reversed(counts(audit.graph).items()) if count)
    console.print(listed(total))
    for finding in audit.findings:
        mark, colour = MARKS[finding.state]
        state = (f"{mark} {in_language(finding.state)} ", colour)
        console.print(styled(state, labelled(finding.what, finding.why)))
    for remark in audit.remarks:
        console.print(f"! {remark}", style="yellow")
    console.print(next_step(audit))


def _details(graph: Graph, thing: ArtifactNode) -> Iterator[str]:
    if thing.state != "verified":
        yield thing.state
    if isinstance(rows := thing.about.get("rows"), int):
        yield f"{rows:,} rows"
    if thing.step:
        step = graph.steps[thing.step]
        yield f"by {step.statement.stage}, {step.statement.ended[:19]}, key {step.signer[:8] or 'none'}"
    elif thing.external:
        yield "external input"
    if thing.about.get("dirty"):
        yield "with uncommitted changes"


def print_descendants(digest: str, descendants: Sequence[Descendant], to: IO[str] | None = None) -> None:
    console = Console(file=to, highlight=False, soft_wrap=True)
    if not descendants:
        console.print(f"{digest[:12]}: no known artifact was made from it.")
    for item in descendants:
        mark, colour = ("✗", "red") if item.fault else ("◇", "blue")
        about = f"{item.digest[:12]}, by {item.stage}, {item.ended[:19]}"
        names = f" {', '.join(item.names)}" if item.names else ""
        why = f" {item.fault}" if item.fault else ""
        console.print(styled((f"{mark} {in_language(item.what)}{names} ", colour), (in_language(about), "dim"), why))
    if descendants and descendants[0].total > len(descendants):
        console.print(f"... and {descendants[0].total - len(descendants):,} more")
