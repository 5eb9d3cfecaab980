"""Sample tenants: seeded, whole, harmless, and with a world in them in which learning can show."""

import re
from pathlib import Path
from typing import Any, NamedTuple

import orjson
import pytest

from qinglan.files.files import read_jsonl
from qinglan.rag.contract import Passage
from qinglan.rows.questions import Columns, read_questions
from qinglan.rows.rows import Question
from standins.samples import TENANTS, SampleCounts, write_sample
from standins.samples.conversations import conversation_turns
from standins.samples.sample_writer import KNOWLEDGE_BASE, QUESTIONS, SLICES
from standins.samples.tenant_content import draw_tenant, load_tenant_content

HARMFUL = re.compile(
    r"治愈|根治|疗效|治疗(?!作用)|包过|保过|必过|稳过|保证通过|百分之百|100%|特效|神药|无副作用|绝对安全|(?<!不可自行)停药"
    r"|代替药|加大剂量|加倍服用|毫克|无需就医|不用看医生|最有效|第一品牌"
)


class Sample(NamedTuple):
    tenant: str
    counts: SampleCounts
    passages: list[Passage]
    questions: list[Question]
    slices: dict[str, dict[str, Any]]


def read(tenant: str, out: Path, counts: SampleCounts) -> Sample:
    questions = [row for row in read_questions(out / QUESTIONS, Columns(), tenant) if isinstance(row, Question)]
    slices = [orjson.loads(line) for line in (out / SLICES).read_bytes().splitlines()]
    passages = [passage for _, passage in read_jsonl(out / KNOWLEDGE_BASE, Passage)]
    return Sample(tenant, counts, passages, questions, {row["id"]: row for row in slices})


@pytest.fixture(scope="module", params=TENANTS)
def sample(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Sample:
    out = tmp_path_factory.mktemp(request.param)
    return read(request.param, out, write_sample(request.param, out, conversations=400, seed=7))


def test_more_conversations_change_none_that_were_there(tmp_path: Path) -> None:
    few, many = (list(conversation_turns("chengla", 5, draw_tenant("chengla", 5), count)) for count in (20, 60))

    assert many[: len(few)] == few


def test_every_gold_passage_is_about_the_item_and_aspect_that_is_asked_for(sample: Sample) -> None:
    titles = {passage.id: passage.title for passage in sample.passages}

    for question in sample.questions:
        row = sample.slices[question.id]
        assert [titles[gold] for gold in question.gold] == [f"{row['item']} {row['aspect']}"]


def test_new_items_and_unseen_phrasings_are_in_dev_and_test_alone(sample: Sample) -> None:
    for mark in ("new_item", "new_ask"):
        splits = {question.split for question in sample.questions if sample.slices[question.id][mark]}
        assert splits == {"dev", "test"}


def test_a_tenth_of_the_sample_questions_is_complete_and_in_house_terms(sample: Sample) -> None:
    complete = [question for question in sample.questions if sample.slices[question.id]["self_contained"]]

    assert 0.07 < len(complete) / len(sample.questions) < 0.13
    for question in complete:
        row = sample.slices[question.id]
        assert row["item"] in question.question and row["aspect"] in question.question
        assert not row["gap"] and not row["new_ask"]


def test_other_questions_leave_out_what_they_are_about_but_the_history_tells(sample: Sample) -> None:
    for question in sample.questions:
        row = sample.slices[question.id]
        if not row["self_contained"]:
            assert row["item"] not in question.question
            assert row["aspect"] not in question.question
            assert row["item"] in question.history_summary


def test_hardly_any_passage_knows_the_words_of_a_gap_question(sample: Sample) -> None:
    contents = {passage.id: passage.content for passage in sample.passages}
    world = load_tenant_content(sample.tenant)

    def documented(gap: bool) -> float:
        rows = [q for q in sample.questions if sample.slices[q.id]["gap"] is gap]
        rows = [q for q in rows if not sample.slices[q.id]["self_contained"]]
        asks = {q.id: world.aspects[sample.slices[q.id]["aspect"]].asks for q in rows}
        known = [any(a in q.question and a in contents[q.gold[0]] for a in asks[q.id]) for q in rows]
        return sum(known) / len(known)

    assert documented(gap=True) < 0.15
    assert documented(gap=False) > 0.85


def test_nothing_in_a_passage_is_harmful(sample: Sample) -> None:
    result = [text for p in sample.passages if (text := HARMFUL.search(p.title + p.content))]

    assert not result
