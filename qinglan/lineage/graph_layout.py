"""Where each step's card stands in the drawing: layers from left to right, no two alike runs of it differ."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from qinglan.lineage.graph import ArtifactNode, Graph, Step

CARD_WIDTH, COLUMN_GAP, CARD_GAP, ROW_HEIGHT, HEADER_HEIGHT, BOTTOM_PADDING = 168, 36, 22, 18, 40, 12


class Row(NamedTuple):
    """A thing in a card."""

    thing: ArtifactNode
    made: bool


class Card(NamedTuple):
    """A step with what it takes from nowhere in the drawing, and what it makes."""

    step: Step | None
    """None: things that stand alone."""

    rows: tuple[Row, ...]

    @property
    def height(self) -> int:
        return HEADER_HEIGHT + ROW_HEIGHT * len(self.rows) + BOTTOM_PADDING


class PlacedCard(NamedTuple):
    card: Card
    x: int
    y: int

    def row(self, number: int) -> int:
        """The middle of a row."""
        return self.y + HEADER_HEIGHT + ROW_HEIGHT * number + ROW_HEIGHT // 2


class Arrow(NamedTuple):
    """From what one step made to the step that used it."""

    digest: str
    maker: str
    user: str


class Lane(NamedTuple):
    """Room for the arrows of one thing where they pass a layer."""

    digest: str
    maker: str
    height: int = 2


class Route(NamedTuple):
    """An arrow as it is drawn, from point to point."""

    thing: ArtifactNode
    points: tuple[tuple[int, int], ...]


def cards(graph: Graph) -> list[Card]:
    """One for each step, in the order of the walk; one more for starts that nobody made."""
    made: dict[str, list[ArtifactNode]] = {}
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


def layout_graph(graph: Graph) -> tuple[list[PlacedCard], list[Route], int, int]:
    """Each card's corner, each arrow's way, and the whole's width and height."""
    between = arrows(graph)
    columns = order_columns(cards(graph), between)
    tallest = max((_height(column) for column in columns), default=0)
    found, lanes = [], {}
    for number, column in enumerate(columns):
        x, y = number * (CARD_WIDTH + COLUMN_GAP) + 4, (tallest - _height(column)) // 2 + 4
        for one in column:
            if isinstance(one, Lane):
                lanes[one.digest, number] = (x, y + one.height // 2)
            else:
                found.append(PlacedCard(one, x, y))
            y += one.height + CARD_GAP
    at = {one.card.step.id: one for one in found if one.card.step}
    routes = [_route(arrow, at, lanes) for arrow in between]
    return found, routes, len(columns) * (CARD_WIDTH + COLUMN_GAP) - COLUMN_GAP + 8, tallest + 8


def order_columns(drawn: Sequence[Card], between: Sequence[Arrow]) -> list[list[Card | Lane]]:
    """Cards by layer, with lanes for arrows that pass one; in a layer by where what they use stands, so that few
    arrows cross.
    """
    before: dict[str, list[str]] = {}
    for arrow in between:
        before.setdefault(arrow.user, []).append(arrow.maker)
    layers = assign_layers([card.step.id for card in drawn if card.step], before)
    columns: list[list[Card | Lane]] = [[] for _ in range(max(layers.values(), default=0) + 1)]
    for card in drawn:
        columns[layers[card.step.id] if card.step else -1].append(card)
    for digest, maker, first, last in _spans(between, layers):
        for number in range(first, last):
            columns[number].append(Lane(digest, maker))
    heights: dict[str, float] = {}
    for column in columns:
        column.sort(key=lambda one: _key(one, before, heights))
        for number, one in enumerate(column):
            heights[_name(one)] = (number + 0.5) / len(column)
    return columns


def assign_layers(names: Sequence[str], before: Mapping[str, Sequence[str]]) -> dict[str, int]:
    """One more than the furthest of what is used; a circle ends where it would begin again."""
    layers = dict.fromkeys(names, 0)
    for _ in names:
        changed = False
        for name in names:
            wanted = max((layers[one] + 1 for one in before.get(name, ()) if one in layers), default=0)
            if layers[name] < wanted < len(names):
                layers[name], changed = wanted, True
        if not changed:
            break
    return layers


def _spans(between: Sequence[Arrow], layers: Mapping[str, int]) -> list[tuple[str, str, int, int]]:
    """The layers that each thing's arrows pass; arrows of the same thing share their lane."""
    furthest: dict[tuple[str, str], int] = {}
    for arrow in between:
        key = arrow.digest, arrow.maker
        furthest[key] = max(furthest.get(key, 0), layers[arrow.user])
    return [(digest, maker, layers[maker] + 1, last) for (digest, maker), last in furthest.items()]


def _route(arrow: Arrow, at: Mapping[str, PlacedCard], lanes: Mapping[tuple[str, int], tuple[int, int]]) -> Route:
    """From the row of what was made, through the lanes, to the head of the card that used it."""
    maker, user = at[arrow.maker], at[arrow.user]
    row = next(n for n, one in enumerate(maker.card.rows) if one.made and one.thing.digest == arrow.digest)
    points = [(maker.x + CARD_WIDTH, maker.row(row))]
    for number in range(maker.x // (CARD_WIDTH + COLUMN_GAP) + 1, user.x // (CARD_WIDTH + COLUMN_GAP)):
        x, y = lanes[arrow.digest, number]
        points += [(x, y), (x + CARD_WIDTH, y)]
    return Route(maker.card.rows[row].thing, (*points, (user.x, user.y + HEADER_HEIGHT // 2)))


def _key(
    one: Card | Lane, before: Mapping[str, Sequence[str]], heights: Mapping[str, float]
) -> tuple[float, str, str]:
    if isinstance(one, Lane):
        return heights.get(_name(one), heights.get(one.maker, 0.5)), "", one.digest
    if one.step is None:
        return 2.0, "", ""
    at = [heights[name] for name in before.get(one.step.id, ()) if name in heights]
    return sum(at) / len(at) if at else 0.5, one.step.statement.stage, one.step.id


def _name(one: Card | Lane) -> str:
    if isinstance(one, Lane):
        return f"lane {one.digest}"
    return one.step.id if one.step else ""


def _height(column: Sequence[Card | Lane]) -> int:
    return sum(one.height for one in column) + CARD_GAP * max(0, len(column) - 1)
