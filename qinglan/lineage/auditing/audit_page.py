"""An audit as one HTML page: the graph as a drawing, then each step and artifact with its record.

The page shows text from statements, which anybody may have written, so all text is escaped.
"""

from html import escape
from pathlib import Path
from typing import Any

import orjson

from qinglan.files.files import atomic_write
from qinglan.lineage.auditing.audit import Audit, counts, judged_models_line, next_step
from qinglan.lineage.auditing.graph_layout import CARD_WIDTH, Arrow, Card, layout_graph
from qinglan.lineage.auditing.terminal_tree import MARKS
from qinglan.lineage.signing.findings import FAULTS, GRAVE, State, worst_state
from qinglan.lineage.signing.statement_index import Step
from qinglan.lineage.trace.walk import ArtifactNode, Graph, steps_by_time
from qinglan.messages import translated
from qinglan.pages.page import render_page
from qinglan.pages.svg_charts import line_element, svg_figure, text_element
from qinglan.terminal import visible

COLOURS: dict[State, str] = {
    "verified": "#2e7d4f",
    "attested": "#2b62b8",
    "missing": "#a66a00",
    "altered": "#b3261e",
    "untrusted": "#b3261e",
}
PALE: dict[State, str] = {
    "verified": "#eaf5ee",
    "attested": "#eaf0fa",
    "missing": "#fdf3dc",
    "altered": "#fbe6e4",
    "untrusted": "#fbe6e4",
}
INK, GREY = "#1f2933", "#5f6b7a"
HEADLINES = {
    "intact": "Intact: everything is as it was signed",
    "incomplete": "Incomplete: something is missing",
    "altered": "Altered: do not deploy it",
}
MAX_DRAWN = 150
"""A graph with more steps is not drawn."""

MAX_NAME = 20


def write_page(audit: Audit, path: Path) -> None:
    with atomic_write(path) as partial:
        partial.write_text(page(audit), encoding="utf-8")


def page(audit: Audit) -> str:
    from markupsafe import Markup

    graph = audit.graph
    anchors = {digest: f"t{number}" for number, digest in enumerate(graph.things)}
    anchors |= {step_id: f"s{number}" for number, step_id in enumerate(graph.steps)}
    return render_page(
        Path(__file__).parent / "audit.html.j2",
        HEADLINES[audit.verdict],
        audit=audit,
        drawing=Markup(drawing(graph, anchors) if len(graph.steps) <= MAX_DRAWN else ""),  # noqa: S704 - escaped
        counts=counts(graph),
        judged=judged_models_line(audit),
        next=next_step(audit),
        marks=MARKS,
        colours=COLOURS,
        anchors=anchors,
        things=list(graph.things.values()),
        steps=[step_record(step, graph) for step in steps_by_time(graph)],
    )


def step_record(step: Step, graph: Graph) -> dict[str, Any]:
    """Return the values of one step for the template."""
    statement = step.statement
    return {
        "step": step,
        "statement": statement,
        "made": [part for part in statement.made if part.digest in graph.things],
        **{name: _pretty_json(getattr(statement, name)) for name in ("config", "facts", "versions")},
    }


def drawing(graph: Graph, anchors: dict[str, str]) -> str:
    """Draw the graph as SVG: cards from left to right, and an arrow from each output to each step that used it."""
    layout = layout_graph(graph)
    parts = [*map(_arrow, layout.arrows), *(_card(card, anchors) for card in layout.cards)]
    svg = svg_figure("Steps and what they used and made, from left to right", layout.height, parts, layout.width)
    return svg.replace("<svg ", f'<svg style="width:{layout.width}px" ', 1)


def _arrow(arrow: Arrow) -> str:
    (x, y), (right, down) = arrow.start, arrow.end
    half, colour = (x + right) // 2, COLOURS[arrow.thing.state]
    return (
        f'<path d="M{x} {y} C{half} {y} {half} {down} {right} {down}" fill="none" stroke="{colour}" '
        f'stroke-width="1.4" stroke-opacity="0.65"/>'
        f'<path d="M{right - 7} {down - 4} L{right} {down} L{right - 7} {down + 4} Z" fill="{colour}"/>'
    )


def _card(card: Card, anchors: dict[str, str]) -> str:
    step, x, y, right = card.step, card.x, card.y, card.x + CARD_WIDTH
    states = [thing.state for thing in (*card.inputs, *card.outputs)]
    if step:
        states.append(step.state)
    worst = worst_state(states)
    parts = [
        f'<rect x="{x}" y="{y}" width="{CARD_WIDTH}" height="{card.height}" rx="8" fill="#fff" '
        f'stroke="{COLOURS[worst] if worst in GRAVE else "#9aa6b4"}" stroke-width="1.5"/>'
    ]
    if step:
        signer = f"key {step.signer[:8]}" if step.signer else "unsigned"
        ended = step.statement.ended[5:16].replace("T", " ")
        head = text_element(x + 10, y + 17, _short(step.statement.stage), "start", INK, bold=True, name=True)
        head += text_element(x + 10, y + 33, f"{ended} {translated(signer)}", "start", GREY, size=11, name=True)
        parts.append(_link(anchors[step.id], head))
        if not step.is_trusted:
            mark = f"✗ {step.state}"
            parts.append(text_element(right - 10, y + 17, mark, "end", COLOURS[step.state], bold=True))
    parts += [_row(card, number, thing, anchors) for number, thing in enumerate((*card.inputs, *card.outputs))]
    if card.inputs and card.outputs:
        line = card.row(len(card.inputs)) - 9
        parts.append(line_element(x + 8, line, right - 8, line, "#cfd6de", "2 3"))
    return "".join(parts)


def _row(card: Card, number: int, thing: ArtifactNode, anchors: dict[str, str]) -> str:
    x, y, output = card.x, card.row(number), number >= len(card.inputs)
    background = ""
    if output or thing.state in FAULTS:
        fill = PALE[thing.state]
        background = f'<rect x="{x + 5}" y="{y - 8}" width="{CARD_WIDTH - 10}" height="16" rx="4" fill="{fill}"/>'
    mark = text_element(x + 10, y + 4, MARKS[thing.state][0], "start", COLOURS[thing.state], bold=True, size=12)
    name = text_element(x + 26, y + 4, _short(thing.name), "start", INK if output else GREY, size=12, name=True)
    title = f"<title>{escape(visible(f'{thing.name}: {translated(thing.state)}'))}</title>"
    return _link(anchors[thing.digest], f"{title}{background}{mark}{name}")


def _link(anchor: str, content: str) -> str:
    return f'<a href="#{anchor}">{content}</a>'


def _short(name: str) -> str:
    return name if len(name) <= MAX_NAME else f"{name[: MAX_NAME - 1]}…"


def _pretty_json(values: Any) -> str:
    return orjson.dumps(values, option=orjson.OPT_INDENT_2 | orjson.OPT_NON_STR_KEYS).decode() if values else ""
