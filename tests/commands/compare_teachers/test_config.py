"""Candidates are checked before anything is sent; the example that ships can be used as it is."""

from pathlib import Path
from typing import Any

import orjson
import pytest

from commands.compare_teachers.config import EXAMPLE, TeachersConfig, load_teachers
from commands.compare_teachers.runs import compare
from pipelines.lines.config import load_config
from qinglan.errors import ConfigError
from tests.servers.echo_servers import PRICE


def candidate(name: str, **model: Any) -> dict[str, Any]:
    return {"name": name, "model": {"model": name, "price": PRICE, **model}}


def test_the_shipped_example_is_a_comparison() -> None:
    assert [teacher.name for teacher in load_teachers(EXAMPLE).teachers] == ["gpt", "deepseek", "qwen"]


@pytest.mark.parametrize(
    "teachers",
    [
        [candidate("first")],
        [candidate("first"), candidate("first")],
        [candidate("first"), candidate("plain")],
        [candidate("first"), {"name": "second", "model": {"model": "gpt-5.6-sol", "price": PRICE}}],
    ],
    ids=["only one", "one name twice", "the question's own name", "a temperature that the model refuses"],
)
def test_teachers_that_cannot_be_compared_are_refused(teachers: list[dict[str, Any]]) -> None:
    with pytest.raises(ConfigError):
        TeachersConfig.parse({"teachers": teachers}, "teachers.yaml")


@pytest.mark.parametrize("text", ["mini: {model: gpt}", "teachers: {mini: {model: gpt}}", "[]"])
def test_an_error_of_the_files_form_names_the_example(tmp_path: Path, text: str) -> None:
    path = tmp_path / "teachers.yaml"
    path.write_text(text)

    with pytest.raises(ConfigError, match=r"teachers\.example\.yaml"):
        load_teachers(path)


def test_missing_keys_hosts_and_a_second_currency_are_named_together_before_anything_is_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("QINGLAN_ALLOWED_HOSTS", "api.openai.com")
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    monkeypatch.delenv("DEEPSEEK_API_KEY", raising=False)
    row = {"id": "1", "question": "一天几次", "conversation_id": "c", "split": "train"}
    (tmp_path / "q.jsonl").write_bytes(orjson.dumps(row))
    (tmp_path / "kb.jsonl").write_bytes(orjson.dumps({"id": "k1", "content": "一天两次。"}))
    config = load_config("fivedoctors", "gpt", questions=tmp_path / "q.jsonl", knowledge_base=tmp_path / "kb.jsonl")
    yuan = candidate("yuan", base_url="http://127.0.0.1:9/v1", price={**PRICE, "currency": "CNY"})
    teachers = load_teachers(EXAMPLE)
    second = TeachersConfig.parse({"teachers": [yuan, candidate("x")]}, "x").teachers[0]
    teachers = teachers.model_copy(update={"teachers": (*teachers.teachers, second)})

    with pytest.raises(ConfigError) as error:
        compare(config, teachers, tmp_path / "out", 20, lambda planned: pytest.fail("asked to spend"))

    for name in ("DEEPSEEK_API_KEY", "api.deepseek.com", "vllm.internal", "CNY"):
        assert name in str(error.value)
