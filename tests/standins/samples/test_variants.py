"""Harder worlds of a sample tenant: each has its one hardship, and the plain sample stays as it was."""

from functools import cache
from pathlib import Path
from statistics import fmean

import orjson
import pytest

from qinglan.files.files import read_jsonl, sha256_file
from qinglan.rag.contract import Passage
from qinglan.rows.questions import Columns, read_questions
from qinglan.rows.rows import Question
from standins.samples import TENANTS, write_sample
from standins.samples.conversations import Turn, conversation_turns
from standins.samples.passages import make_passages
from standins.samples.sample_writer import KNOWLEDGE_BASE, QUESTIONS, SLICES
from standins.samples.tenant_content import VARIANTS, draw_tenant

SEED, CONVERSATIONS = 7, 400
PLAIN = {
    "fivedoctors": ("6a43e2e5a9c8ed70", "47e9de16ce862974", "e7a1c2233b89f0a6"),
    "chengla": ("51c96c7c341922a9", "80e11fa784e53c2f", "72cfbc5f8a97bc00"),
}
"""First digits of the digests of the plain sample's files, of 40 conversations, as they were before any variant."""


@cache
def turns(tenant: str, variant: str) -> list[Turn]:
    return list(conversation_turns(tenant, SEED, draw_tenant(tenant, SEED, VARIANTS[variant]), CONVERSATIONS))


@cache
def passages(tenant: str, variant: str) -> list[Passage]:
    return make_passages(tenant, SEED, draw_tenant(tenant, SEED, VARIANTS[variant]))[0]


def answers(tenant: str, variant: str) -> list[Passage]:
    return [passage for passage in passages(tenant, variant) if passage.metadata["kind"] == "说明"]


@pytest.mark.parametrize("tenant", TENANTS)
def test_the_plain_sample_keeps_its_bytes(tenant: str, tmp_path: Path) -> None:
    write_sample(tenant, tmp_path, conversations=40, seed=SEED)

    assert tuple(sha256_file(tmp_path / name)[:16] for name in (KNOWLEDGE_BASE, QUESTIONS, SLICES)) == PLAIN[tenant]


@pytest.mark.parametrize("tenant", TENANTS)
def test_plain_titles_tell_no_two_answers_about_an_item_apart(tenant: str) -> None:
    rows = answers(tenant, "plain-titles")

    assert len({row.title for row in rows}) == len({row.metadata["item"] for row in rows})
    terms = draw_tenant(tenant, SEED).world.aspects
    assert all(any(row.content.startswith(f"{term}：") for term in terms) for row in rows)


@pytest.mark.parametrize("tenant", TENANTS)
def test_wandering_histories_are_long_and_name_other_items_before_and_after(tenant: str) -> None:
    plain, rows = ([row for row in turns(tenant, name) if row.history] for name in ("plain", "wandering"))
    items = draw_tenant(tenant, SEED).items

    assert fmean(len(row.history) for row in rows) > 3 * fmean(len(row.history) for row in plain)
    about = [row for row in rows if row.item in row.history]
    further = [[item for item in items if item in row.history and item != row.item] for row in about]
    assert fmean(map(len, further)) > 3
    last = [row.history.rsplit("；", 1)[-1] for row in about]
    assert fmean(row.item in part for row, part in zip(about, last, strict=True)) < 0.1
    assert len(about) > 0.9 * len(rows)


@pytest.mark.slow
@pytest.mark.parametrize("tenant", TENANTS)
def test_one_row_in_twenty_names_a_wrong_passage_in_every_split(tenant: str, tmp_path: Path) -> None:
    write_sample(tenant, tmp_path, CONVERSATIONS, SEED, "wrong-rows")

    slices = {row["id"]: row for row in map(orjson.loads, (tmp_path / SLICES).read_bytes().splitlines())}
    titles = {passage.id: passage.title for _, passage in read_jsonl(tmp_path / KNOWLEDGE_BASE, Passage)}
    rows = [row for row in read_questions(tmp_path / QUESTIONS, Columns(), tenant) if isinstance(row, Question)]
    wrong = [row for row in rows if slices[row.id].get("wrong")]
    assert 0.03 < len(wrong) / len(rows) < 0.07
    assert {row.split for row in wrong} == {"train", "dev", "test"}
    for row in rows:
        right = [titles[gold] for gold in row.gold] == [f"{slices[row.id]['item']} {slices[row.id]['aspect']}"]
        assert right != (row in wrong)


@pytest.mark.slow
@pytest.mark.parametrize("tenant", TENANTS)
def test_half_of_the_incomplete_questions_ask_for_two_things_and_both_passages_are_gold(
    tenant: str, tmp_path: Path
) -> None:
    write_sample(tenant, tmp_path, CONVERSATIONS, SEED, "two-things")

    drawn = draw_tenant(tenant, SEED)
    slices = {row["id"]: row for row in map(orjson.loads, (tmp_path / SLICES).read_bytes().splitlines())}
    titles = {passage.id: passage.title for _, passage in read_jsonl(tmp_path / KNOWLEDGE_BASE, Passage)}
    rows = [row for row in read_questions(tmp_path / QUESTIONS, Columns(), tenant) if isinstance(row, Question)]
    incomplete = [row for row in rows if not slices[row.id]["self_contained"]]
    double = [row for row in rows if slices[row.id].get("two_things")]
    assert 0.4 < len(double) / len(incomplete) < 0.6
    for row in double:
        terms = [titles[gold].split(" ")[1] for gold in row.gold]
        assert len(set(terms)) == 2
        assert {titles[gold].split(" ")[0] for gold in row.gold} == {slices[row.id]["item"]}
        assert all(any(ask in row.question for ask in drawn.world.aspects[term].asks) for term in terms)


@pytest.mark.parametrize("variant", sorted(VARIANTS))
def test_pairs_of_dev_and_test_stay_out_of_training_in_every_variant(variant: str) -> None:
    pairs: dict[str, set[tuple[str, str]]] = {"train": set(), "dev": set(), "test": set()}
    for turn in turns("fivedoctors", variant):
        pairs[turn.split] |= set(turn.gold)

    assert not pairs["train"] & (pairs["dev"] | pairs["test"])
