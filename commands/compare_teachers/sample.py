"""Draw the rows on which teachers are compared: whole conversations of the training split, never the locked test."""

import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from components.data.convert.split_rows import SplitInput, conversation_splits
from pipelines.lines.rewriter import RunConfig
from qinglan.errors import DataError
from qinglan.rows.questions import read_questions
from qinglan.rows.rows import Question
from qinglan.rows.splits import Conversation


class Sample(NamedTuple):
    rows: list[Question]
    training: int
    """Number of training rows that the sample was drawn from."""

    locked: int
    """Number of dev and test rows, which are never used."""


def draw_sample(config: RunConfig, count: int, seed: int) -> Sample:
    """Draw about `count` rows, the same for the same sheet and seed; a larger sample contains the smaller one."""
    surveyed = [
        SplitInput(at, row.id, _conversation(row), row.split, "") for at, row in enumerate(_questions(config), 1)
    ]
    splits = conversation_splits(surveyed, config.convert)  # one marked turn decides for all of its conversation
    counts = Counter(row.conversation for row in surveyed if splits[row.conversation] == "train")
    locked = len(surveyed) - counts.total()
    if not counts:
        raise DataError(
            f"{config.questions}: none of {locked:,} rows is for training. Teachers are never compared on dev or "
            "the locked test: the choice would flatter every later figure. Give the sheet conversations to train on."
        )
    chosen = choose_conversations(counts, count, seed)
    rows = [row for row in _questions(config) if _conversation(row) in chosen]
    return Sample(rows, counts.total(), locked)


def choose_conversations(conversations: Mapping[Conversation, int], count: int, seed: int) -> set[Conversation]:
    """Choose conversations in the seed's order until they have enough rows."""
    chosen: set[Conversation] = set()
    rows = 0
    for name in sorted(conversations, key=lambda name: _place(name, seed)):
        if rows >= count:
            break
        chosen.add(name)
        rows += conversations[name]
    return chosen


def _conversation(row: Question) -> Conversation:
    return row.tenant_id, row.conversation_id


def _questions(config: RunConfig) -> Iterator[Question]:
    assert config.questions is not None
    for row in read_questions(config.questions, config.generate.columns, config.tenant_id):
        if isinstance(row, Question):
            yield row


def _place(conversation: Conversation, seed: int) -> bytes:
    return hashlib.sha256("\x1f".join((f"compare {seed}", *conversation)).encode()).digest()
