"""Render an audit as one HTML page: the tree of artifacts, then the details of each step and artifact.

The page shows text from statements, which anybody may have written, so all text is escaped.
"""

from pathlib import Path
from typing import Any

import orjson

from qinglan.files.files import write_atomically
from qinglan.lineage.auditing.audit import Audit, counts, judged_models_line, next_step
from qinglan.lineage.auditing.terminal_tree import MARKS, MAX_DEPTH, tree_lines
from qinglan.lineage.signing.findings import State
from qinglan.lineage.signing.statement_index import Step
from qinglan.lineage.trace.walk import Graph, steps_by_time
from qinglan.pages.page import render_page

COLOURS: dict[State, str] = {
    "verified": "#2e7d4f",
    "attested": "#2b62b8",
    "missing": "#a66a00",
    "altered": "#b3261e",
    "untrusted": "#b3261e",
}
HEADLINES = {
    "intact": "Intact: everything is as it was signed",
    "incomplete": "Incomplete: something is missing",
    "altered": "Altered: do not deploy it",
}


def write_page(audit: Audit, path: Path) -> None:
    write_atomically(path, page(audit).encode())


def page(audit: Audit) -> str:
    graph = audit.graph
    anchors = {digest: f"t{number}" for number, digest in enumerate(graph.things)}
    anchors |= {step_id: f"s{number}" for number, step_id in enumerate(graph.steps)}
    return render_page(
        Path(__file__).parent / "audit.html.j2",
        HEADLINES[audit.verdict],
        audit=audit,
        tree=[line for line in tree_lines(graph) if line.depth <= MAX_DEPTH],
        counts=counts(graph),
        judged=judged_models_line(audit),
        next=next_step(audit),
        marks=MARKS,
        colours=COLOURS,
        anchors=anchors,
        things=list(graph.things.values()),
        steps=[_step_record(step, graph) for step in steps_by_time(graph)],
    )


def _step_record(step: Step, graph: Graph) -> dict[str, Any]:
    """Return the values of one step for the template."""
    statement = step.statement
    return {
        "step": step,
        "statement": statement,
        "made": [part for part in statement.made if part.digest in graph.things],
        **{name: _pretty_json(getattr(statement, name)) for name in ("config", "facts", "versions")},
    }


def _pretty_json(values: Any) -> str:
    return orjson.dumps(values, option=orjson.OPT_INDENT_2 | orjson.OPT_NON_STR_KEYS).decode() if values else ""
