"""The layout of an audit's drawing: a card for each step, in columns from left to right; the same at each run."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import NamedTuple

from qinglan.lineage.signing.statement_index import Step
from qinglan.lineage.trace.walk import ArtifactNode, Graph

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


Corners = Mapping[tuple[str, int], tuple[int, int]]
"""Upper left corner of each box, by its name and column: a lane has a box in each column that it passes."""


def layout_graph(graph: Graph) -> Layout:
    cards, arrows, columns = make_cards(graph), make_arrows(graph), column_numbers(graph)
    boxes = order_columns(cards, arrows, columns)
    heights = [sum(box.height for box in column) + CARD_GAP * max(0, len(column) - 1) for column in boxes]
    corners = place_boxes(boxes, heights)
    for (name, _), (x, y) in corners.items():
        if name in cards:
            cards[name] = cards[name]._replace(x=x, y=y)
    routed = [arrow._replace(points=arrow_points(arrow, cards, columns, corners)) for arrow in arrows]
    width = len(boxes) * (CARD_WIDTH + COLUMN_GAP) - COLUMN_GAP + 2 * MARGIN
    return Layout(list(cards.values()), routed, width, max(heights) + 2 * MARGIN)


def place_boxes(columns: Sequence[Sequence[Box]], heights: Sequence[int]) -> Corners:
    """Stack the boxes of each column, with all columns centred on the same line."""
    corners: dict[tuple[str, int], tuple[int, int]] = {}
    for number, column in enumerate(columns):
        x, y = number * (CARD_WIDTH + COLUMN_GAP) + MARGIN, (max(heights) - heights[number]) // 2 + MARGIN
        for box in column:
            corners[box.name, number] = x, y
            y += box.height + CARD_GAP
    return corners


def arrow_points(
    arrow: Arrow, cards: Mapping[str, Card], columns: Mapping[str, int], corners: Corners
) -> tuple[tuple[int, int], ...]:
    """From the output's row, along the lanes of the columns between, to the head of the user's card."""
    maker, user = cards[arrow.thing.step], cards[arrow.user]
    points = [(maker.x + CARD_WIDTH, maker.row(len(maker.inputs) + maker.outputs.index(arrow.thing)))]
    for number in range(columns[arrow.thing.step] + 1, columns[arrow.user]):
        x, y = corners[arrow.thing.digest, number]
        points += [(x, y + LANE_HEIGHT // 2), (x + CARD_WIDTH, y + LANE_HEIGHT // 2)]
    return (*points, (user.x, user.y + HEADER_HEIGHT // 2))


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
    """Number the columns: a step stands one to the right of the last step that made an input of it.

    The walk lists inputs before what uses them, so one pass is enough; in a circle, unknown inputs are skipped.
    """
    columns: dict[str, int] = {}
    for thing in graph.things.values():
        if thing.step and thing.step not in columns:
            makers = (graph.things[part.digest].step for part in graph.used(thing) if part.digest in graph.things)
            columns[thing.step] = max((columns[maker] + 1 for maker in makers if maker in columns), default=0)
    return columns


def order_columns(cards: Mapping[str, Card], arrows: Sequence[Arrow], columns: Mapping[str, int]) -> list[list[Box]]:
    """Order each column from top to bottom so that few arrows cross.

    This is the barycentre heuristic of layered graph drawing: a box stands at the mean position of its sources in the
    columns before. Arrows that pass a column get a lane there, which is a box as well.
    """
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
