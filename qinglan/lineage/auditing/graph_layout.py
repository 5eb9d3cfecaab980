"""Layout of an audit's drawing: one card per step, in columns from left to right. Equal graphs get equal layouts."""

from collections import defaultdict
from statistics import fmean
from typing import NamedTuple

from qinglan.lineage.signing.statement_index import Step
from qinglan.lineage.trace.walk import ArtifactNode, Graph

CARD_WIDTH, COLUMN_GAP, CARD_GAP, ROW_HEIGHT, HEADER_HEIGHT, BOTTOM_PADDING, MARGIN = 168, 36, 22, 18, 40, 12, 4
"""Sizes in pixels."""


class Card(NamedTuple):
    """Card of a step: its outputs, and those of its inputs that no step made."""

    step: Step | None
    """None on the card of the walk's starts that no step made."""

    inputs: tuple[ArtifactNode, ...]
    outputs: tuple[ArtifactNode, ...] = ()
    x: int = 0
    y: int = 0

    @property
    def height(self) -> int:
        return HEADER_HEIGHT + ROW_HEIGHT * (len(self.inputs) + len(self.outputs)) + BOTTOM_PADDING

    def row(self, number: int) -> int:
        """Return the y coordinate of the middle of a row."""
        return self.y + HEADER_HEIGHT + ROW_HEIGHT * number + ROW_HEIGHT // 2


class Arrow(NamedTuple):
    """A line from an output of one step to a step that used it."""

    thing: ArtifactNode
    start: tuple[int, int]
    end: tuple[int, int]


class Layout(NamedTuple):
    cards: list[Card]
    arrows: list[Arrow]
    width: int
    height: int


def layout_graph(graph: Graph) -> Layout:
    cards = _make_cards(graph)
    uses = {
        (part.digest, step_id): graph.things[part.digest]
        for step_id, step in graph.steps.items()
        for part in step.statement.used
        if part.digest in graph.things and graph.things[part.digest].step not in ("", step_id)
    }
    columns = _ordered_columns(graph, cards, uses)
    heights = [sum(cards[step].height + CARD_GAP for step in column) for column in columns]
    for number, column in enumerate(columns):
        # All columns are centred on the same line.
        x, y = number * (CARD_WIDTH + COLUMN_GAP) + MARGIN, (max(heights) - heights[number]) // 2 + MARGIN
        for step_id in column:
            cards[step_id] = cards[step_id]._replace(x=x, y=y)
            y += cards[step_id].height + CARD_GAP
    arrows = []
    for (_, user), thing in uses.items():
        maker, card = cards[thing.step], cards[user]
        row = maker.row(len(maker.inputs) + maker.outputs.index(thing))
        arrows.append(Arrow(thing, (maker.x + CARD_WIDTH, row), (card.x, card.y + HEADER_HEIGHT // 2)))
    width = len(columns) * (CARD_WIDTH + COLUMN_GAP) - COLUMN_GAP + 2 * MARGIN
    return Layout(list(cards.values()), arrows, width, max(heights) - CARD_GAP + 2 * MARGIN)


def _make_cards(graph: Graph) -> dict[str, Card]:
    """Make a card for each step, by the step's id. The id "" is the card of the walk's starts that no step made."""
    outputs: dict[str, list[ArtifactNode]] = defaultdict(list)
    for thing in graph.things.values():
        outputs[thing.step].append(thing)
    cards = {}
    for step_id, step in graph.steps.items():
        used = dict.fromkeys(part.digest for part in step.statement.used if part.digest in graph.things)
        inputs = tuple(graph.things[digest] for digest in used if not graph.things[digest].step)
        cards[step_id] = Card(step, inputs, tuple(outputs[step_id]))
    if loose := tuple(graph.things[digest] for digest in graph.starts if not graph.things[digest].step):
        cards[""] = Card(None, loose)
    return cards


def _ordered_columns(
    graph: Graph, cards: dict[str, Card], uses: dict[tuple[str, str], ArtifactNode]
) -> list[list[str]]:
    """Return the card ids of each column, from top to bottom in an order in which few arrows cross.

    A step stands one column to the right of the rightmost step that made one of its inputs. The walk lists inputs
    before the artifacts made from them, so one pass is enough; in a cycle, inputs without a column yet are skipped.
    Within a column the barycentre heuristic of layered graph drawing sorts the cards by the mean position of their
    sources in the columns before.
    """
    sources: dict[str, list[str]] = defaultdict(list)
    for (_, user), thing in uses.items():
        sources[user].append(thing.step)
    numbers: dict[str, int] = {}
    for thing in graph.things.values():
        if thing.step and thing.step not in numbers:
            makers = [numbers[maker] for maker in sources[thing.step] if maker in numbers]
            numbers[thing.step] = max(makers, default=-1) + 1
    columns: list[list[str]] = [[] for _ in range(max(numbers.values(), default=0) + 1)]
    for step_id in cards:
        columns[numbers.get(step_id, -1)].append(step_id)
    positions: dict[str, float] = {}

    def rank(step_id: str) -> tuple[bool, float, str, str]:
        step = cards[step_id].step
        before = [positions[source] for source in sources[step_id] if source in positions]
        return not step_id, fmean(before or [0.5]), step.statement.stage if step else "", step_id

    for column in columns:
        column.sort(key=rank)
        positions |= {step_id: (number + 0.5) / len(column) for number, step_id in enumerate(column)}
    return columns
