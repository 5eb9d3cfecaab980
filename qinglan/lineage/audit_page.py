"""An audit as one page: the graph drawn, and every step and thing with its record. All of it is untrusted text."""

from html import escape
from pathlib import Path
from typing import Any

import orjson

from qinglan.files import atomic_write
from qinglan.lineage.audit import Audit, counts, next_step
from qinglan.lineage.findings import State
from qinglan.lineage.graph import Graph, Step, steps_by_time, worst_state
from qinglan.lineage.graph_layout import CARD_WIDTH, PlacedCard, Route, Row, layout_graph
from qinglan.lineage.terminal_tree import MARKS
from qinglan.page import render_page
from qinglan.svg_charts import line_element, svg_figure, text_element
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
HEADLINES = {
    "intact": "Intact: all of it is as it was signed",
    "incomplete": "Incomplete: something is missing",
    "altered": "Altered: deploy nothing of it",
}
MOST_DRAWN = 150
LONGEST = 21


def write_page(found: Audit, path: Path) -> None:
    with atomic_write(path) as partial:
        partial.write_text(page(found), encoding="utf-8")


def page(found: Audit) -> str:
    from markupsafe import Markup

    graph = found.graph
    anchors = anchors_of(graph)
    drawn = drawing(graph, anchors) if len(graph.steps) <= MOST_DRAWN else ""
    return render_page(
        Path(__file__).parent / "audit.html.j2", HEADLINES[found.verdict], found=found, drawing=Markup(drawn),
        counts=counts(graph), next=next_step(found), marks=MARKS, colours=COLOURS, anchors=anchors,
        things=list(graph.things.values()), steps=[step_record(one, graph) for one in steps_by_time(graph)],
    )  # fmt: skip


def anchors_of(graph: Graph) -> dict[str, str]:
    """Where each digest and step has its record on the page."""
    things = {digest: f"t{number}" for number, digest in enumerate(graph.things)}
    return things | {name: f"s{number}" for number, name in enumerate(graph.steps)}


def step_record(step: Step, graph: Graph) -> dict[str, Any]:
    """What the template shows of a step."""
    one = step.statement
    return {
        "step": step, "one": one, "config": _pretty_json(one.config), "facts": _pretty_json(one.facts),
        "versions": _pretty_json(one.versions), "used": list(one.used),
        "made": [part for part in one.made if part.digest in graph.things],
    }  # fmt: skip


def drawing(graph: Graph, anchors: dict[str, str]) -> str:
    """Cards from left to right, an arrow from what one step made to each step that used it."""
    placed, routes, width, height = layout_graph(graph)
    parts = [*map(_arrow, routes), *(_card(one, anchors) for one in placed)]
    made = svg_figure("What was made of what, from left to right", height, parts, width)
    return made.replace("<svg ", f'<svg style="width:{width}px" ', 1)


def _arrow(route: Route) -> str:
    """Bent between layers, straight along a lane."""
    (x, y), *others = route.points
    way = [f"M{x} {y}"]
    for number, (right, down) in enumerate(others):
        half = (x + right) / 2
        way.append(f"L{right} {down}" if number % 2 else f"C{half:.0f} {y} {half:.0f} {down} {right} {down}")
        x, y = right, down
    colour = COLOURS[route.thing.state]
    return (
        f'<path d="{" ".join(way)}" fill="none" stroke="{colour}" stroke-width="1.4" stroke-opacity="0.65"/>'
        f'<path d="M{x - 7} {y - 4} L{x} {y} L{x - 7} {y + 4} Z" fill="{colour}"/>'
    )


def _card(one: PlacedCard, anchors: dict[str, str]) -> str:
    step, card = one.card.step, one.card
    state: State = worst_state([*([step.state] if step else []), *(row.thing.state for row in card.rows)])
    state = state if step is None or step.state != "attested" or state in ("altered", "untrusted") else "attested"
    parts = [
        f'<rect x="{one.x}" y="{one.y}" width="{CARD_WIDTH}" height="{card.height}" rx="8" fill="#fff" '
        f'stroke="{COLOURS[state] if state in ("altered", "untrusted") else "#9aa6b4"}" stroke-width="1.5"/>'
    ]
    if step:
        signer = f"key {step.signer[:8]}" if step.signer else "unsigned"
        head = text_element(one.x + 10, one.y + 17, _short(step.statement.stage), "start", "#1f2933", bold=True)
        said = f"{step.statement.ended[5:16].replace('T', ' ')}, {signer}"
        head += text_element(one.x + 10, one.y + 33, said, "start", "#5f6b7a", size=11)
        parts.append(_link(anchors[step.id], head))
        if not step.counts:
            parts.append(
                text_element(
                    one.x + CARD_WIDTH - 10, one.y + 17, f"✗ {step.state}", "end", COLOURS[step.state], bold=True
                )
            )
    parts += [_row(one, number, row, anchors) for number, row in enumerate(card.rows)]
    split = sum(not row.made for row in card.rows)
    if step and 0 < split < len(card.rows):
        y = one.row(split) - 9
        parts.append(line_element(one.x + 8, y, one.x + CARD_WIDTH - 8, y, "#cfd6de", "2 3"))
    return "".join(parts)


def _row(one: PlacedCard, number: int, row: Row, anchors: dict[str, str]) -> str:
    y, thing = one.row(number), row.thing
    mark, _ = MARKS[thing.state]
    colour = COLOURS[thing.state]
    back = (
        f'<rect x="{one.x + 5}" y="{y - 8}" width="{CARD_WIDTH - 10}" height="16" rx="4" fill="{PALE[thing.state]}"/>'
        if row.made or thing.state in ("altered", "untrusted", "missing")
        else ""
    )
    name = text_element(one.x + 26, y + 4, _short(thing.name), "start", "#1f2933" if row.made else "#5f6b7a", size=12)
    return _link(
        anchors[thing.digest],
        f"<title>{escape(visible(f'{thing.name}: {thing.state}'))}</title>{back}"
        f"{text_element(one.x + 10, y + 4, mark, 'start', colour, bold=True, size=12)}{name}",
    )


def _link(anchor: str, inside: str) -> str:
    return f'<a href="#{anchor}">{inside}</a>'


def _short(name: str) -> str:
    return name if len(name) <= LONGEST else f"{name[: LONGEST - 1]}…"


def _pretty_json(values: Any) -> str:
    return orjson.dumps(values, option=orjson.OPT_INDENT_2 | orjson.OPT_NON_STR_KEYS).decode() if values else ""
