"""With a passage in its prompt the stand-in extracts from that prompt alone, and declines what nobody wrote down."""

import json
from pathlib import Path
from typing import Any

import pytest

from qinglan.prompts import PSEUDO_FORMAT, hindsight_messages, pseudo_messages, teacher_messages
from standins.teacher.extractive_backend import ExtractiveBackend, load_extractive_backend
from tests.standins.teacher.sample_company import QUESTION, write_house

TITLE, CONTENT = "鱼油软胶囊 退换货政策", "鱼油软胶囊请看标签。常见问法：买错了能退不；能换一个吗。"
COMPLETE = QUESTION.model_copy(update={"question": "虾青素软胶囊每日服用频次", "history_summary": ""})


@pytest.fixture(scope="module")
def brain(tmp_path_factory: pytest.TempPathFactory) -> ExtractiveBackend:
    house: Path = write_house(tmp_path_factory.mktemp("house") / "kb.jsonl")
    return load_extractive_backend({"fivedoctors": house})


def answer_of(brain: ExtractiveBackend, messages: list[Any], form: dict[str, Any] | None = None) -> str:
    answer = brain.answer("fivedoctors", [dict(message) for message in messages], form)
    assert isinstance(answer, str)
    return answer


def test_in_hindsight_it_gives_the_heading_of_a_passage_about_the_same_thing(brain: ExtractiveBackend) -> None:
    unknown = QUESTION.model_copy(update={"question": "那吃法是啥"})
    assert answer_of(brain, teacher_messages(unknown)) == "虾青素软胶囊 那吃法是啥"

    assert (
        answer_of(brain, hindsight_messages(unknown, "虾青素软胶囊 每日服用频次", "x")) == "虾青素软胶囊 每日服用频次"
    )


def test_a_passage_about_something_else_changes_nothing(brain: ExtractiveBackend) -> None:
    assert answer_of(brain, hindsight_messages(QUESTION, TITLE, CONTENT)) == answer_of(
        brain, teacher_messages(QUESTION)
    )


def test_a_question_takes_the_example_s_manner_and_a_way_of_asking_that_stands_in_the_passage(
    brain: ExtractiveBackend,
) -> None:
    answer = json.loads(answer_of(brain, pseudo_messages(TITLE, CONTENT, QUESTION), PSEUDO_FORMAT))

    assert answer["原始查询"] in ("那它买错了能退不", "那它能换一个吗")
    assert answer["历史摘要"] == QUESTION.history_summary.replace("虾青素软胶囊", "鱼油软胶囊")
    assert answer["独立问题"] == f"鱼油软胶囊{answer['原始查询'].removeprefix('那它')}"
    assert answer["检索词"] == TITLE


def test_an_example_that_stands_alone_gets_a_question_that_stands_alone(brain: ExtractiveBackend) -> None:
    answer = json.loads(answer_of(brain, pseudo_messages(TITLE, CONTENT, COMPLETE), PSEUDO_FORMAT))

    assert answer == {
        "历史摘要": "", "原始查询": "鱼油软胶囊退换货政策", "独立问题": "鱼油软胶囊退换货政策", "检索词": TITLE,
    }  # fmt: skip


def test_where_nobody_wrote_down_how_users_ask_it_has_no_question(brain: ExtractiveBackend) -> None:
    answer = json.loads(answer_of(brain, pseudo_messages(TITLE, "鱼油软胶囊请看标签。", QUESTION), PSEUDO_FORMAT))

    assert answer["原始查询"] == ""
