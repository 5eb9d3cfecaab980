"""Where each step's card stands in the drawing: layers from left to right, no two alike runs of it differ."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from qinglan.lineage.graph import Graph, Step, Thing

CARD, GAP, BETWEEN, ROW, HEAD, EDGE = 168, 36, 22, 18, 40, 12


class Row(NamedTuple):
    """A thing in a card."""

    thing: Thing
    made: bool


class Card(NamedTuple):
    """A step with what it takes from nowhere in the drawing, and what it makes."""

    step: Step | None
    """None: things that stand alone."""

    rows: tuple[Row, ...]

    @property
    def height(self) -> int:
        return HEAD + ROW * len(self.rows) + EDGE


class Placed(NamedTuple):
    card: Card
    x: int
    y: int

    def row(self, number: int) -> int:
        """The middle of a row."""
        return self.y + HEAD + ROW * number + ROW // 2


class Arrow(NamedTuple):
    """From what one step made to the step that used it."""

    digest: str
    maker: str
    user: str


def cards(graph: Graph) -> list[Card]:
    """One for each step, in the order of the walk; one more for starts that nobody made."""
    made: dict[str, list[Thing]] = {}
    for thing in graph.things.values():
        made.setdefault(thing.step, []).append(thing)
    found = []
    for name, step in graph.steps.items():
        roots = dict.fromkeys(part.digest for part in step.statement.used if part.digest in graph.things)
        used = [graph.things[one] for one in roots if not graph.things[one].step]
        rows = [*(Row(one, False) for one in used), *(Row(one, True) for one in made.get(name, ()))]
        found.append(Card(step, tuple(rows)))
    alone = [graph.things[one] for one in graph.starts if not graph.things[one].step]
    return [*found, *([Card(None, tuple(Row(one, False) for one in alone))] if alone else [])]


def arrows(graph: Graph) -> list[Arrow]:
    found = (
        Arrow(part.digest, graph.things[part.digest].step, name)
        for name, step in graph.steps.items()
        for part in step.statement.used
        if part.digest in graph.things and graph.things[part.digest].step not in ("", name)
    )
    return list(dict.fromkeys(found))


def place(graph: Graph) -> tuple[list[Placed], int, int]:
    """Each card's corner, and the whole's width and height."""
    columns = ordered(cards(graph), arrows(graph))
    tallest = max((_height(column) for column in columns), default=0)
    found = []
    for number, column in enumerate(columns):
        y = (tallest - _height(column)) // 2
        for card in column:
            found.append(Placed(card, number * (CARD + GAP) + 4, y + 4))
            y += card.height + BETWEEN
    return found, len(columns) * (CARD + GAP) - GAP + 8, tallest + 8


def ordered(drawn: Sequence[Card], between: Sequence[Arrow]) -> list[list[Card]]:
    """Cards by layer; in a layer, by where what they use stands, so that few arrows cross."""
    before: dict[str, list[str]] = {}
    for arrow in between:
        before.setdefault(arrow.user, []).append(arrow.maker)
    layers = layered([card.step.id for card in drawn if card.step], before)
    columns: list[list[Card]] = [[] for _ in range(max(layers.values(), default=0) + 1)]
    for card in drawn:
        columns[layers[card.step.id] if card.step else -1].append(card)
    heights: dict[str, float] = {}
    for column in columns:
        column.sort(key=lambda card: _key(card, before, heights))
        for number, card in enumerate(column):
            if card.step:
                heights[card.step.id] = (number + 0.5) / len(column)
    return columns


def layered(names: Sequence[str], before: Mapping[str, Sequence[str]]) -> dict[str, int]:
    """One more than the furthest of what is used; a circle ends where it would begin again."""
    layers = dict.fromkeys(names, 0)
    for _ in names:
        changed = False
        for name in names:
            wanted = max((layers[one] + 1 for one in before.get(name, ()) if one in layers), default=0)
            if wanted > layers[name] and wanted < len(names):
                layers[name], changed = wanted, True
        if not changed:
            break
    return layers


def _key(card: Card, before: Mapping[str, Sequence[str]], heights: Mapping[str, float]) -> tuple[float, str, str]:
    if card.step is None:
        return (2.0, "", "")
    at = [heights[one] for one in before.get(card.step.id, ()) if one in heights]
    return sum(at) / len(at) if at else 0.5, card.step.statement.stage, card.step.id


def _height(column: Sequence[Card]) -> int:
    return sum(card.height for card in column) + BETWEEN * (len(column) - 1)
