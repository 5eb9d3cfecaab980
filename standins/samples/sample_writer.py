"""Write a sample tenant to disk: a company's sheet and knowledge base, and slices for the evaluation."""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import orjson

from qinglan.errors import ConfigError
from qinglan.files.files import atomic_write, dump_line
from qinglan.tables.tables import write_table
from standins.samples.conversations import SPLITS, Turn, conversation_turns
from standins.samples.passages import GoldPassages, make_passages
from standins.samples.tenant_content import draw_tenant, variant_settings

KNOWLEDGE_BASE = "knowledge_base.jsonl"
QUESTIONS = "questions.xlsx"
SLICES = "slices.jsonl"
COLUMNS = ("编号", "对话编号", "问题", "用户画像", "历史摘要", "标准段落", "划分")


class SampleCounts(NamedTuple):
    conversations: int
    questions: int
    passages: int
    train: int
    dev: int
    test: int

    def in_words(self) -> str:
        return (
            f"{self.conversations:,} conversations, {self.questions:,} questions, {self.passages:,} passages; "
            f"{self.train:,} rows of train, {self.dev:,} of dev, {self.test:,} of test"
        )


def write_sample(tenant: str, out: Path, conversations: int, seed: int, variant: str = "plain") -> SampleCounts:
    """Write knowledge_base.jsonl, questions.xlsx and slices.jsonl to `out`. Same arguments give the same bytes."""
    if conversations < len(SPLITS):
        raise ConfigError(f"conversations: {conversations} is too few; {len(SPLITS)} give each split one.")
    drawn = draw_tenant(tenant, seed, variant_settings(variant))
    known, gold = make_passages(tenant, seed, drawn)
    with atomic_write(out / KNOWLEDGE_BASE) as partial, partial.open("wb") as file:
        file.writelines(map(dump_line, known))
    counts = _write_turns(out, conversation_turns(tenant, seed, drawn, conversations), gold)
    return SampleCounts(conversations, sum(counts.values()), len(known), **counts)


def _write_turns(out: Path, turns: Iterator[Turn], gold: GoldPassages) -> dict[str, int]:
    """Write the sheet and the slices in one pass, so that memory does not grow with the rows. Returns the number of
    rows in each split."""
    counts = {"train": 0, "dev": 0, "test": 0}
    with (
        atomic_write(out / SLICES) as partial, partial.open("wb") as slices,
        write_table(out / QUESTIONS, COLUMNS) as add,
    ):  # fmt: skip
        for turn in turns:
            passages = ";".join(gold[pair] for pair in turn.gold)
            add((turn.id, turn.conversation, turn.question, turn.profile, turn.history, passages, turn.split))
            slices.write(_slice(turn))
            counts[turn.split] += 1
    return counts


def _slice(turn: Turn) -> bytes:
    """Build a line of the slices: a question's properties, by which only the evaluation's report groups questions."""
    hardships = {"wrong": turn.wrong is not None, "two_things": bool(turn.second_term)}
    return orjson.dumps({
        "id": turn.id, "item": turn.item, "aspect": turn.term, "gap": turn.gap, "new_item": turn.new_item,
        "new_ask": turn.new_ask, "self_contained": turn.self_contained,
        **{name: True for name, holds in hardships.items() if holds},
    }) + b"\n"  # fmt: skip
