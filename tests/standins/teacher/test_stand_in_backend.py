"""Additional models of the stand-in differ as their settings say, and take the parameters of their provider."""

from pathlib import Path
from typing import Any

import httpx
import pytest

from qinglan.prompts import JUDGE_FORMAT, teacher_messages
from qinglan.rows.rows import Question
from standins.teacher.app import create_app
from standins.teacher.backend import Refusal
from standins.teacher.config import Behaviour, Variant
from standins.teacher.stand_in_backend import StandInBackend
from tests.servers.echo_servers import running
from tests.standins.teacher.sample_company import QUESTION, write_house

TENANT = "fivedoctors"


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_house(tmp_path_factory.mktemp("house") / "kb.jsonl")


def question_of(number: int) -> Question:
    return QUESTION.model_copy(update={"id": str(number), "question": f"那它一天吃几次{number}"})


def answers(house: Path, rows: int = 400, **settings: Any) -> list[str | Refusal]:
    brain = StandInBackend({TENANT: house}, variants={"m": Variant(tenant=TENANT, **settings)})
    return [brain.answer("m", list(teacher_messages(question_of(n))), None) for n in range(rows)]  # type: ignore[arg-type]


@pytest.mark.slow
def test_a_weaker_model_gives_back_its_share_of_questions_as_they_were(house: Path) -> None:
    best, weak = answers(house), answers(house, skill=0.75)
    unchanged = [answer == other for answer, other in zip(best, weak, strict=True)]

    assert 0.68 < sum(unchanged) / len(unchanged) < 0.82
    assert all(unchanged[n] or weak[n] == question_of(n).question for n in range(len(unchanged)))


@pytest.mark.parametrize(
    ("refusal", "message"),
    [
        ("words", "抱歉，我不能改写这个问题。"),
        ("field", Refusal("抱歉，我不能改写这个问题。")),
        ("filter", Refusal("", "content_filter")),
    ],
)
def test_a_reserved_model_declines_in_its_own_way(house: Path, refusal: str, message: str | Refusal) -> None:
    result = answers(house, refuses=0.2, refusal=refusal)

    assert 0.13 < result.count(message) / len(result) < 0.27


def test_a_model_that_thinks_aloud_ends_with_its_answer(house: Path) -> None:
    [aloud], [best] = answers(house, rows=1, thinks=True), answers(house, rows=1)

    assert str(aloud).startswith("<think>")
    assert str(aloud).endswith(f"</think>\n\n{best}")


def test_a_model_takes_the_parameters_that_its_namesake_takes(house: Path) -> None:
    names = ("gpt-5.6-sol", "deepseek-flash", "Qwen/Qwen3-32B")
    brain = StandInBackend({TENANT: house}, variants={name: Variant(tenant=TENANT) for name in names})

    def status(url: str, model: str, **parameters: Any) -> tuple[int, Any]:
        body = {"model": model, "messages": teacher_messages(QUESTION), **parameters}
        answer = httpx.post(f"{url}/v1/chat/completions", json=body, trust_env=False).json()
        error = answer.get("error")
        return (400, error["code"]) if error else (200, answer["choices"][0]["finish_reason"])

    with running(create_app(brain, Behaviour())) as url:
        assert status(url, "gpt-5.6-sol", max_tokens=100) == (400, "unsupported_parameter")
        assert status(url, "gpt-5.6-sol", temperature=0.3) == (400, "unsupported_value")
        assert status(url, "gpt-5.6-sol", temperature=0.3, reasoning_effort="none") == (200, "stop")
        assert status(url, "gpt-5.6-sol", max_completion_tokens=2) == (200, "length")
        assert status(url, "deepseek-flash", max_completion_tokens=2) == (200, "stop")
        assert status(url, "deepseek-flash", max_tokens=2, temperature=0.3) == (200, "length")
        shape = {"response_format": JUDGE_FORMAT}
        assert status(url, "deepseek-flash", **shape) == (400, "invalid_request_error")
        assert status(url, "Qwen/Qwen3-32B", max_tokens=2, temperature=0.3) == (200, "length")
