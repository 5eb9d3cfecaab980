"""An unusable answer is asked for again by the next run and by no other; a complete one serves under any limit."""

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import orjson
import pytest

from qinglan.errors import RowError
from qinglan.llm.client import GatewayClient
from qinglan.llm.paid.journal_reader import read_answers, read_report
from tests.servers.echo_servers import Reply, Scripted, completion, gateway, gateway_config, running


class Teacher(Scripted):
    """Cuts what is longer than the limit of the request; `bad` is its first answer to each question that names it."""

    def __init__(self, bad: bytes = b"") -> None:
        super().__init__(Reply(200, b""))
        self.bad = bad
        self.asked_questions: list[tuple[str, int]] = []

    def _next(self, path: str, body: bytes, headers: dict[str, str]) -> Reply:
        request = orjson.loads(body)
        question = request["messages"][-1]["content"]
        limit = request.get("max_tokens") or request["max_completion_tokens"]
        again = any(question == before for before, _ in self.asked_questions)
        self.asked_questions.append((question, limit))
        if "bad" in question and not again:
            return Reply(200, self.bad)
        cut = "long" in question and limit < 200
        return Reply(200, completion("half" if cut else f"whole {question}", finish="length" if cut else "stop"))


def run_of(teacher: Teacher, folder: Path, questions: list[str], export: bool = False, **model: Any) -> list[str]:
    """One gateway's answers to the questions, or the reason why there is none."""
    shape = {"type": "json_object"} if model.pop("structured", False) else None

    async def ask_all(url: str) -> list[str]:
        async with gateway(gateway_config(url, model=model), folder) as at, GatewayClient(at, "generate") as client:
            answers = []
            for question in questions:
                message: Any = [{"role": "user", "content": question}]
                try:
                    answers.append((await client.ask("teacher", message, question, response_format=shape)).text)
                except RowError as error:
                    answers.append(error.reason)
                if export:
                    await client.exported("0" * 64)
            return answers

    with running(teacher) as url:
        return asyncio.run(ask_all(url))


LIMITS = [
    # limits of two runs, and what the second run asks for
    ({"max_output_tokens": 100}, {"max_output_tokens": 300}, ["long"]),
    ({"max_output_tokens": 100}, {"max_output_tokens": 100}, []),
    ({"max_output_tokens": 100}, {"max_output_tokens": 50}, []),
    ({"max_output_tokens": 100}, {"max_output_tokens": 101}, ["long"]),
    ({"max_output_tokens": 100}, {"max_output_tokens": 100, "max_tokens_parameter": "max_tokens"}, []),
    ({"max_output_tokens": 300}, {"max_output_tokens": 100}, []),
    ({"max_output_tokens": 300}, {"max_output_tokens": 301}, []),
    ({"max_output_tokens": 300}, {"max_output_tokens": 300, "max_tokens_parameter": "max_tokens"}, []),
    ({"max_output_tokens": 100, "max_tokens_parameter": "max_tokens"}, {"max_output_tokens": 300}, ["long"]),
    ({"max_output_tokens": 300}, {"max_output_tokens": 300, "temperature": 0.5}, ["a", "long", "b"]),
    ({"max_output_tokens": 300}, {"max_output_tokens": 300, "model": "other"}, ["a", "long", "b"]),
]


@pytest.mark.parametrize(("first", "second", "requested"), LIMITS)
def test_another_limit_asks_only_for_what_was_cut(
    tmp_path: Path, first: dict[str, Any], second: dict[str, Any], requested: list[str]
) -> None:
    teacher = Teacher()
    run_of(teacher, tmp_path, ["a", "long", "b"], **first)
    before = len(teacher.asked_questions)
    answers = run_of(teacher, tmp_path, ["a", "long", "b"], **second)

    assert [question for question, _ in teacher.asked_questions[before:]] == requested
    cut = max(first["max_output_tokens"], second["max_output_tokens"]) < 200
    assert answers == ["whole a", "truncated" if cut else "whole long", "whole b"]


UNUSABLE = [
    ("refused", completion("", refusal="no"), {}),
    ("refused", completion("I'm sorry, I can't help with that."), {}),
    ("refused", completion("抱歉，我无法回答这个问题。"), {}),
    ("refused", completion("half", finish="content_filter"), {}),
    ("refused", completion("Sorry, I cannot"), {"refusal_patterns": ("Sorry",)}),
    ("empty", completion("  "), {}),
    ("empty", completion("\u200b\ufeff"), {}),
    ("empty", completion("<think>for ever"), {"strip_thinking": True}),
    ("too long", completion("长" * 1_001), {}),
    ("malformed", completion("{"), {"structured": True}),
    ("malformed", completion("[1]"), {"structured": True}),
]


@pytest.mark.parametrize(("reason", "bad", "model"), UNUSABLE)
def test_an_unusable_answer_is_asked_for_again_by_the_next_run_only(
    tmp_path: Path, reason: str, bad: bytes, model: dict[str, Any]
) -> None:
    teacher = Teacher(bad)
    if model.get("structured"):
        teacher._next = lambda *call: _as_object(Teacher._next(teacher, *call))  # type: ignore[method-assign]
    runs = [run_of(teacher, tmp_path, ["good", "bad", "bad"], **model) for _ in range(3)]

    assert [question for question, _ in teacher.asked_questions] == ["good", "bad", "bad"]
    assert runs[0][1:] == [reason, reason], "the same run asks once"
    assert runs[1] == runs[2]
    assert reason not in runs[1]
    assert [answer.fault for answer in read_answers(tmp_path / "journal.sqlite")] == ["", "", ""]


def _as_object(reply: Reply) -> Reply:
    return reply if b"whole" not in reply.body else Reply(200, completion('{"x": 1}'))


def test_a_gateway_that_serves_several_runs_asks_again_after_a_step_has_ended(tmp_path: Path) -> None:
    teacher = Teacher(completion("  "))

    assert run_of(teacher, tmp_path, ["bad", "bad", "bad"], export=True) == ["empty", "whole bad", "whole bad"]
    assert len(teacher.asked_questions) == 2
    assert read_report(tmp_path / "journal.sqlite")["lost_attempts"] == 1


def test_a_journal_of_an_earlier_release_pays_nothing_again(tmp_path: Path) -> None:
    """It has no table of prompts, and its cut answers count as answered."""
    teacher = Teacher()
    run_of(teacher, tmp_path, ["a", "long", "b"], max_output_tokens=100)
    with closing(sqlite3.connect(tmp_path / "journal.sqlite")) as database:
        database.executescript("DROP TABLE prompts; UPDATE calls SET reason = '';")
        # a row that no gateway has written must not keep the journal from opening
        database.execute("INSERT INTO calls (key, model, sample, request, state) VALUES ('k', 'm', 'x', 'y', 'sent')")
        database.commit()

    assert run_of(teacher, tmp_path, ["a", "long", "b"], max_output_tokens=300)[1] == "whole long"
    assert teacher.asked_questions[3:] == [("long", 300)]


class Silent(Teacher):
    """Answers with nothing, whatever the limit."""

    def _next(self, path: str, body: bytes, headers: dict[str, str]) -> Reply:
        super()._next(path, body, headers)
        return Reply(200, completion(" "))


def test_a_second_retry_is_another_call_and_no_answer_is_overwritten(tmp_path: Path) -> None:
    teacher = Silent()
    for _ in range(4):
        assert run_of(teacher, tmp_path, ["long"], max_output_tokens=100) == ["empty"]

    answers = list(read_answers(tmp_path / "journal.sqlite"))
    assert (len(teacher.asked_questions), len({answer.call for answer in answers})) == (4, 4)
    assert run_of(Teacher(), tmp_path, ["long"], max_output_tokens=300) == ["whole long"]


def test_a_cut_answer_is_paid_once_for_each_limit_however_often_the_run_is_repeated(tmp_path: Path) -> None:
    teacher = Teacher()
    for limit in (100, 100, 100, 150, 150, 100, 300, 300, 100):
        answer = run_of(teacher, tmp_path, ["long"], max_output_tokens=limit)

    assert teacher.asked_questions == [("long", 100), ("long", 150), ("long", 300)]
    assert answer == ["whole long"], "a complete answer serves under any limit"


def test_the_gateway_tells_the_seconds_of_live_answers_of_a_step(tmp_path: Path) -> None:
    async def ask(url: str) -> list[list[float]]:
        async with gateway(gateway_config(url), tmp_path) as at, GatewayClient(at, "generate") as client:
            message: Any = [{"role": "user", "content": "question"}]
            for _ in range(2):  # the second answer comes from the journal, and took no call
                await client.ask("teacher", message, "r")
            return [await client.live_seconds(step, "teacher") for step in ("generate", "augment")]

    with running(Teacher()) as url:
        generate, augment = asyncio.run(ask(url))
    assert len(generate) == 1 and 0 < generate[0] < 30
    assert augment == []
