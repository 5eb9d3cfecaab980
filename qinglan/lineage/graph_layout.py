"""The layout of an audit's drawing: a card for each step, in columns from left to right; the same at each run."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import NamedTuple

from qinglan.lineage.statement_index import Step
from qinglan.lineage.walk import ArtifactNode, Graph

CARD_WIDTH, COLUMN_GAP, CARD_GAP, ROW_HEIGHT, HEADER_HEIGHT, BOTTOM_PADDING = 168, 36, 22, 18, 40, 12
LANE_HEIGHT, MARGIN = 2, 4


class Card(NamedTuple):
    """A step with the inputs that no step made, and its outputs."""

    step: Step | None
    """None on the card of things that no step used or made."""

    inputs: tuple[ArtifactNode, ...]
    outputs: tuple[ArtifactNode, ...] = ()
    x: int = 0
    y: int = 0

    @property
    def height(self) -> int:
        return HEADER_HEIGHT + ROW_HEIGHT * (len(self.inputs) + len(self.outputs)) + BOTTOM_PADDING

    def row(self, number: int) -> int:
        """The middle of a row."""
        return self.y + HEADER_HEIGHT + ROW_HEIGHT * number + ROW_HEIGHT // 2


class Arrow(NamedTuple):
    """A line from an output of one step, point to point, to a step that used it."""

    thing: ArtifactNode
    user: str
    points: tuple[tuple[int, int], ...] = ()


class Box(NamedTuple):
    """A card; or a lane, which is room for the arrows of one thing where they pass a column."""

    name: str
    """A step's id, or a thing's digest."""

    label: str
    height: int
    sources: Sequence[str]
    """Names of boxes further left, near whose height it should stand."""


class Layout(NamedTuple):
    cards: list[Card]
    arrows: list[Arrow]
    width: int
    height: int


def layout_graph(graph: Graph) -> Layout:
    cards, arrows, columns = make_cards(graph), make_arrows(graph), column_numbers(graph)
    boxes = order_columns(cards, arrows, columns)
    heights = [sum(box.height for box in column) + CARD_GAP * max(0, len(column) - 1) for column in boxes]
    corners: dict[tuple[str, int], tuple[int, int]] = {}
    for number, column in enumerate(boxes):
        x, y = number * (CARD_WIDTH + COLUMN_GAP) + MARGIN, (max(heights) - heights[number]) // 2 + MARGIN
        for box in column:
            corners[box.name, number] = x, y
            if box.name in cards:
                cards[box.name] = cards[box.name]._replace(x=x, y=y)
            y += box.height + CARD_GAP
    routed = []
    for arrow in arrows:
        maker, user = cards[arrow.thing.step], cards[arrow.user]
        points = [(maker.x + CARD_WIDTH, maker.row(len(maker.inputs) + maker.outputs.index(arrow.thing)))]
        for number in range(columns[arrow.thing.step] + 1, columns[arrow.user]):
            x, y = corners[arrow.thing.digest, number]
            points += [(x, y + LANE_HEIGHT // 2), (x + CARD_WIDTH, y + LANE_HEIGHT // 2)]
        routed.append(arrow._replace(points=(*points, (user.x, user.y + HEADER_HEIGHT // 2))))
    width = len(boxes) * (CARD_WIDTH + COLUMN_GAP) - COLUMN_GAP + 2 * MARGIN
    return Layout(list(cards.values()), routed, width, max(heights) + 2 * MARGIN)


def make_cards(graph: Graph) -> dict[str, Card]:
    """A card for each step, by its id, in the order of the walk; under "" the starts that no step made."""
    outputs: dict[str, list[ArtifactNode]] = defaultdict(list)
    for thing in graph.things.values():
        outputs[thing.step].append(thing)
    cards = {}
    for step_id, step in graph.steps.items():
        used = dict.fromkeys(part.digest for part in step.statement.used if part.digest in graph.things)
        inputs = tuple(graph.things[digest] for digest in used if not graph.things[digest].step)
        cards[step_id] = Card(step, inputs, tuple(outputs[step_id]))
    if alone := tuple(graph.things[digest] for digest in graph.starts if not graph.things[digest].step):
        cards[""] = Card(None, alone)
    return cards


def make_arrows(graph: Graph) -> list[Arrow]:
    uses = {
        (part.digest, step_id): Arrow(graph.things[part.digest], step_id)
        for step_id, step in graph.steps.items()
        for part in step.statement.used
        if part.digest in graph.things and graph.things[part.digest].step not in ("", step_id)
    }
    return list(uses.values())


def column_numbers(graph: Graph) -> dict[str, int]:
    """One more than the furthest of a step's inputs, which the walk lists before its outputs, except in a circle."""
    columns: dict[str, int] = {}
    for thing in graph.things.values():
        if thing.step and thing.step not in columns:
            makers = (graph.things[part.digest].step for part in graph.used(thing) if part.digest in graph.things)
            columns[thing.step] = max((columns[maker] + 1 for maker in makers if maker in columns), default=0)
    return columns


def order_columns(cards: Mapping[str, Card], arrows: Sequence[Arrow], columns: Mapping[str, int]) -> list[list[Box]]:
    """Each column's boxes from top to bottom, each near the boxes that it comes from, so that few arrows cross."""
    boxes: list[list[Box]] = [[] for _ in range(max(columns.values(), default=0) + 1)]
    makers: dict[str, list[str]] = defaultdict(list)
    furthest: dict[tuple[str, str], int] = {}
    for thing, user, _ in arrows:
        makers[user].append(thing.step)
        furthest[thing.digest, thing.step] = max(furthest.get((thing.digest, thing.step), 0), columns[user])
    for step_id, card in cards.items():
        label = card.step.statement.stage if card.step else ""
        boxes[columns.get(step_id, -1)].append(Box(step_id, label, card.height, makers[step_id]))
    for (digest, maker), last in furthest.items():
        first = columns[maker] + 1
        for number in range(first, last):
            boxes[number].append(Box(digest, "", LANE_HEIGHT, [maker if number == first else digest]))
    positions: dict[str, float] = {}
    for column in boxes:
        column.sort(
            key=lambda box: (
                not box.name,
                fmean([positions[name] for name in box.sources if name in positions] or [0.5]),
                box.label,
                box.name,
            )
        )
        positions |= {box.name: (number + 0.5) / len(column) for number, box in enumerate(column)}
    return boxes
