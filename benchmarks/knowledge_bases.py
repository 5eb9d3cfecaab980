"""Knowledge bases of any size in a sample tenant's words, and queries whose gold is known.

made = write_knowledge_base(Path("kb.jsonl"), passages=1_000_000, queries=1_000)
made[0].text, made[0].gold    # '海润虾青素软胶囊 每日服用频次', 'fivedoctors-0001234'

A sample has 120 items. Here each stands once in every series, as in a catalogue of many brands: passages are told
apart by two characters of the series, a few of the item, and the aspect.
"""

import itertools
import random
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from qinglan.files.files import atomic_write, dump_line
from qinglan.rag.contract import Passage
from standins.samples.passages import make_passages
from standins.samples.tenant_content import TenantDraw, draw_tenant

TENANT = "fivedoctors"
SYLLABLES = "安百宝辰诚川春德东方丰福光国海和恒弘华佳健江金景康兰乐利良林龙美明南宁启清泉仁荣瑞润山盛泰"
"""Series are called by two of these, in a seeded order."""


class Query(NamedTuple):
    """A query as training and production send it: an item, and an aspect in the house's words or a user's."""

    text: str
    gold: str
    """The id of the passage that answers it."""

    in_house_words: bool


def write_knowledge_base(path: Path, passages: int, queries: int, seed: int = 0) -> list[Query]:
    """Write `passages` passages to `path` as they are made; returns queries from all parts of it."""
    rng = random.Random(f"{seed}-queries")
    drawn = draw_tenant(TENANT, seed)
    series = -(-passages // (len(drawn.items) * (len(drawn.world.aspects) + len(drawn.world.fillers))))
    chosen: list[Query] = []
    written = 0
    with atomic_write(path) as partial, partial.open("wb") as file:
        for new_passages, candidates in itertools.islice(_series(drawn, seed), series):
            taken = new_passages[: passages - written]
            file.writelines(map(dump_line, taken))
            written += len(taken)
            chosen += _choose(candidates, {passage.id for passage in taken}, -(-queries // series), rng)
    return rng.sample(chosen, min(queries, len(chosen)))


def _series(drawn: TenantDraw, seed: int) -> Iterator[tuple[list[Passage], dict[tuple[str, str], str]]]:
    """One series after another: its passages, and which of them answers which item and aspect."""
    names = [first + second for first, second in itertools.permutations(SYLLABLES, 2)]
    random.Random(f"{seed}-series").shuffle(names)
    for number, name in enumerate(names):
        its_own = drawn._replace(items=[name + item for item in drawn.items])
        new_passages, gold = make_passages(TENANT, seed * 10_000 + number, its_own)
        prefix = f"{TENANT}-{number:04d}-"
        yield (
            [passage.model_copy(update={"id": _numbered(prefix, passage.id)}) for passage in new_passages],
            {pair: _numbered(prefix, id) for pair, id in gold.items()},
        )


def _numbered(prefix: str, id: str) -> str:
    return prefix + id.rpartition("-")[2]


def _choose(gold: dict[tuple[str, str], str], known_ids: set[str], count: int, rng: random.Random) -> Iterator[Query]:
    pairs = [pair for pair, id in gold.items() if id in known_ids]
    asks = draw_tenant(TENANT, 0).world.aspects
    for item, term in rng.sample(pairs, min(count, len(pairs))):
        if rng.random() < 0.5:
            yield Query(f"{item} {term}", gold[item, term], in_house_words=True)
        else:
            yield Query(item + rng.choice(asks[term].asks), gold[item, term], in_house_words=False)
