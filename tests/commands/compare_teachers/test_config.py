"""Candidates are checked before anything is sent; the example that ships can be used as it is."""

from pathlib import Path
from typing import Any

import pytest

from commands.compare_teachers.config import EXAMPLE, TeachersConfig, check_payable, journal_name, load_teachers
from commands.compare_teachers.plan import plan_lines, warnings
from pipelines.lines.config import load_config
from pipelines.lines.rewriter import RunConfig
from qinglan.errors import ConfigError
from qinglan.rows.rows import Question
from tests.servers.echo_servers import PRICE


def candidate(name: str, **model: Any) -> dict[str, Any]:
    return {"name": name, "model": {"model": name, "price": PRICE, **model}}


def parsed(*teachers: dict[str, Any]) -> TeachersConfig:
    return TeachersConfig.parse({"teachers": list(teachers)}, "teachers.yaml")


def paid(tmp_path: Path) -> RunConfig:
    return load_config("fivedoctors", "gpt", questions=tmp_path / "q.xlsx")


def test_the_shipped_example_is_a_comparison() -> None:
    assert [teacher.name for teacher in load_teachers(EXAMPLE).teachers] == ["gpt", "deepseek", "qwen"]


@pytest.mark.parametrize(
    ("teachers", "says"),
    [
        ([candidate("one")], "at least 2"),
        ([candidate("one"), candidate("one")], "'one' is given twice"),
        ([candidate("one"), candidate("plain")], "choose another"),
        ([candidate("one"), {"name": "two", "model": {"model": "gpt-5.6-sol", "price": PRICE}}], "temperature: null"),
    ],
)
def test_teachers_that_cannot_be_compared_are_refused_by_name(teachers: list[dict[str, Any]], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        parsed(*teachers)


def test_prices_in_two_currencies_are_not_compared(tmp_path: Path) -> None:
    teachers = parsed(candidate("one"), candidate("two", price={**PRICE, "currency": "CNY"}))

    with pytest.raises(ConfigError, match=r"two in CNY.*one currency"):
        check_payable(load_config("fivedoctors", "demo", questions=tmp_path / "q.xlsx"), teachers)


def test_a_missing_key_is_said_before_anything_is_sent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QINGLAN_ALLOWED_HOSTS", "api.openai.com,api.deepseek.com")
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    monkeypatch.delenv("DEEPSEEK_API_KEY", raising=False)

    with pytest.raises(ConfigError, match="environment variable DEEPSEEK_API_KEY"):
        check_payable(paid(tmp_path), load_teachers(EXAMPLE))


def test_a_host_that_is_not_allowed_is_said_before_anything_is_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("QINGLAN_ALLOWED_HOSTS", "api.openai.com")
    monkeypatch.setenv("OPENAI_API_KEY", "k")

    with pytest.raises(ConfigError, match=r"deepseek\.base_url"):
        check_payable(paid(tmp_path), load_teachers(EXAMPLE))


def test_a_teacher_that_is_asked_otherwise_has_another_journal_and_a_new_price_has_not() -> None:
    one = parsed(candidate("one"), candidate("two")).teachers[0]
    warmer = one.model_copy(update={"model": one.model.model_copy(update={"temperature": 0.9})})
    dearer = one.model.price.model_copy(update={"output": 99.0})
    dearer_one = one.model_copy(update={"model": one.model.model_copy(update={"price": dearer})})

    assert journal_name(warmer, False) != journal_name(one, False) == journal_name(dearer_one, False)
    assert journal_name(one, False).startswith("one-")


def test_the_plan_prices_each_teacher_and_warns_of_a_budget_that_thinking_could_pass(tmp_path: Path) -> None:
    config, teachers = paid(tmp_path), load_teachers(EXAMPLE)
    rows = [
        Question(id=str(n), tenant_id="fivedoctors", conversation_id=str(n), question=f"几次{n}", need="x" * (n % 2))
        for n in range(4_000)
    ]
    lines = plan_lines(config, teachers, rows)

    assert [(line.who, line.calls) for line in lines] == [
        ("gpt", 4_000), ("deepseek", 4_000), ("qwen", 4_000), ("judge", 2_000), ("examiner", 1_200),
    ]  # fmt: skip
    assert lines[0].cost > 5 * lines[1].cost > 0
    assert lines[0].most > lines[0].cost
    said = " ".join(warnings(config, teachers, lines, teachers.teachers[0].model.price.as_of.replace(year=2027)))
    assert "ends it early" in said
    assert "gpt's price was read 365 days ago" in said


WRONG_FILES = [
    "mini: {model: gpt}",
    "teachers: {mini: {model: gpt}}",
    "teachers: []",
    "teachers: [{base_url: http://127.0.0.1, model: gpt}]",
    "teachers: [{name: mini, model: gpt}, {name: big, model: gpt}]",
    "[]",
]


@pytest.mark.parametrize("text", WRONG_FILES)
def test_a_file_of_another_form_is_told_the_form_and_the_example(tmp_path: Path, text: str) -> None:
    path = tmp_path / "teachers.yaml"
    path.write_text(text)

    with pytest.raises(ConfigError) as wrong:
        load_teachers(path)
    assert "teachers.example.yaml" in str(wrong.value)
    assert "- {name: gpt, model: {base_url: ..." in str(wrong.value)
