"""The chain as a tree on a terminal, plain where it is none; what is reached twice is shown once."""

from collections.abc import Iterator, Sequence
from typing import IO, NamedTuple

from qinglan.lineage.audit import Audit, counts, next_step
from qinglan.lineage.descendants import Descendant
from qinglan.lineage.findings import State
from qinglan.lineage.graph import ArtifactNode, Graph
from qinglan.lineage.rollout_statement import format_rollout as rollout_line

MARKS: dict[State, tuple[str, str]] = {
    "verified": ("✓", "green"),
    "attested": ("◇", "blue"),
    "missing": ("?", "yellow"),
    "altered": ("✗", "red"),
    "untrusted": ("✗", "red"),
}
VERDICT_COLOURS = {"intact": "green", "incomplete": "yellow", "altered": "red"}
DEEPEST = 60
"""Levels that a terminal shows; a chain may be thousands long."""


class TreeLine(NamedTuple):
    """One line of the tree."""

    depth: int
    thing: ArtifactNode
    again: bool
    """It stands further up."""


def tree_lines(graph: Graph) -> Iterator[TreeLine]:
    """Depth first from the starts, without recursion."""
    shown: set[str] = set()
    opened: set[str] = set()
    stack = [(0, digest) for digest in reversed(graph.starts)]
    while stack:
        depth, digest = stack.pop()
        thing = graph.things[digest]
        yield TreeLine(depth, thing, digest in shown)
        if thing.step not in opened and digest not in shown:
            used = dict.fromkeys(part.digest for part in graph.used(thing) if part.digest != digest)
            stack.extend((depth + 1, one) for one in reversed(used))
        shown.add(digest)
        opened.add(thing.step)


def print_audit(found: Audit, to: IO[str] | None = None) -> None:
    """Tree, counts, reasons, the next step."""
    from qinglan.terminal.console import Console, styled

    console = Console(file=to, highlight=False, soft_wrap=True)
    name = f"{found.name} " if found.name else ""
    console.print(styled(name, found.digest[:12] or found.target, " ", _verdict(found)))
    for one in found.overrides:
        said = f"BREAK-GLASS {one.at} by {one.by}: {one.reason} (missing then: {'; '.join(one.missing) or 'nothing'})"
        console.print(styled((said, "bold white on red")))
    for kept in found.rollouts:
        mark, colour = MARKS[kept.state]
        console.print(styled((f"{mark} ", colour), rollout_line(kept)))
    hidden = 0
    for line in tree_lines(found.graph):
        if line.depth > DEEPEST:
            hidden += 1
        else:
            console.print(_format_line(found.graph, line))
    if hidden:
        console.print(f"... and {hidden:,} more, deeper than {DEEPEST} levels; --page or --json shows all")
    console.print(", ".join(f"{count:,} {state}" for state, count in reversed(counts(found.graph).items()) if count))
    for finding in found.findings:
        mark, colour = MARKS[finding.state]
        console.print(styled((f"{mark} {finding.state} ", colour), f"{finding.what}: {finding.why}"))
    console.print(next_step(found))


def _verdict(found: Audit) -> tuple[str, str]:
    return (
        found.verdict.upper() if found.verdict != "intact" else found.verdict,
        f"bold {VERDICT_COLOURS[found.verdict]}",
    )


def _format_line(graph: Graph, one: TreeLine) -> "object":
    from qinglan.terminal.console import styled

    thing = one.thing
    mark, colour = MARKS[thing.state]
    about = [thing.digest[:12], *([thing.state] if thing.state != "verified" else [])]
    if "rows" in thing.about:
        about.append(f"{thing.about['rows']:,} rows" if isinstance(thing.about["rows"], int) else "")
    if thing.step:
        step = graph.steps[thing.step]
        about.append(f"by {step.statement.stage}, {step.statement.ended[:19]}, key {step.signer[:8] or 'none'}")
    elif thing.given:
        about.append("given")
    if thing.about.get("dirty"):
        about.append("with changes that no commit has")
    if one.again:
        about = [thing.digest[:12], "see above"]
    return styled("  " * one.depth, (f"{mark} {thing.name} ", colour), (", ".join(filter(None, about)), "dim"))


def print_descendants(digest: str, descendants: Sequence[Descendant], to: IO[str] | None = None) -> None:
    """What was made from a digest, a line each."""
    from qinglan.terminal.console import Console, styled

    console = Console(file=to, highlight=False, soft_wrap=True)
    if not descendants:
        console.print(f"{digest[:12]}: nothing that is known here descends from it.")
    for found in descendants:
        mark, colour = ("✗", "red") if found.fault else ("◇", "blue")
        about = f"{found.digest[:12]}, by {found.stage}, {found.ended[:19]}"
        names = f" {', '.join(found.names)}" if found.names else ""
        why = f" {found.fault}" if found.fault else ""
        console.print(styled((f"{mark} {found.what}{names} ", colour), (about, "dim"), why))
    if descendants and descendants[0].total > len(descendants):
        console.print(f"... and {descendants[0].total - len(descendants):,} more")
