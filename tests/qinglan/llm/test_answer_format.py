"""A judgement is asked for in the form that the provider takes, and reads the same in each."""

import asyncio
from pathlib import Path
from typing import Any

import orjson
import pytest

from qinglan.errors import RowError
from qinglan.llm.answer_format import default_format, object_text
from qinglan.llm.client import GatewayClient
from qinglan.prompts import JUDGE_FORMAT, Question, judge_messages, teacher_messages
from standins.teacher.app import create_app
from standins.teacher.config import Behaviour, Variant
from standins.teacher.stand_in_backend import StandInBackend
from tests.servers.company_rags import write_passages
from tests.servers.echo_servers import gateway, gateway_config, running

QUESTION = Question("fivedoctors", "一天吃几次", history_summary="用户正在了解虾青素软胶囊")
DEEPSEEK = {"model": "deepseek-flash", "max_tokens_parameter": "max_tokens", "temperature": None}


def ask(folder: Path, formats: str, **model: Any) -> tuple[dict[str, Any], str]:
    """A judgement and a rewrite, through a gateway, by a server that takes these forms alone."""
    variants = {"deepseek-flash": Variant(tenant="fivedoctors")}
    backend = StandInBackend({"fivedoctors": write_passages(folder)}, variants=variants)

    async def run(url: str) -> tuple[dict[str, Any], str]:
        config = gateway_config(url, model={"model": "fivedoctors", "max_output_tokens": 300, **model})
        config = config.model_copy(update={"judge": config.teacher})
        async with gateway(config, folder) as address, GatewayClient(address, "test") as client:
            messages = judge_messages(QUESTION, "虾青素软胶囊 每日服用")
            judged = await client.ask("judge", messages, "1", response_format=JUDGE_FORMAT)
            written = await client.ask("teacher", teacher_messages(QUESTION), "1")
            return orjson.loads(judged.text), written.line()

    with running(create_app(backend, Behaviour(answer_formats=formats))) as url:
        return asyncio.run(run(url))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("formats", "model"),
    [
        ("json_schema", {}),
        ("json_object", {"answer_format": "json_object"}),
        ("tool", {"answer_format": "tool"}),
        ("", {"answer_format": "text"}),
        ("json_schema,json_object", DEEPSEEK),
    ],
)
def test_every_form_gives_the_same_judgement_and_leaves_rewrites_alone(
    tmp_path: Path, formats: str, model: dict[str, Any]
) -> None:
    judgement, rewrite = ask(tmp_path, formats, **model)

    assert 1 <= judgement["综合得分"] <= 5
    assert isinstance(judgement["评分理由"], str)
    assert rewrite and "{" not in rewrite


@pytest.mark.slow
def test_a_form_that_the_provider_refuses_is_the_rows_error_and_no_score(tmp_path: Path) -> None:
    with pytest.raises(RowError, match="response_format type is unavailable"):
        ask(tmp_path, "json_object")


@pytest.mark.parametrize(
    ("url", "model", "form"),
    [
        ("https://api.deepseek.com/v1", "deepseek-v4-pro", "json_object"),
        ("https://proxy.example/v1", "deepseek-flash", "json_object"),
        ("http://vllm:8000/v1", "deepseek-ai/DeepSeek-V3.1", "json_schema"),
        ("https://dashscope.aliyuncs.com/compatible-mode/v1", "qwen-max", "json_object"),
        ("https://api.openai.com/v1", "gpt-5.6-sol", "json_schema"),
    ],
)
def test_known_hosts_have_their_form(url: str, model: str, form: str) -> None:
    assert default_format(url, model) == form


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ('```json\n{"a": 1}\n```', '{"a": 1}'),
        ('```\n{"a": 1}\n```\n', '{"a": 1}'),
        ('Here it is: ```json\n{"a": 1}\n```', None),
        ('```json\n{"a": 1}\n``` and ```json\n{"b": 1}\n```', None),
        ("```python\nprint(1)\n```", None),
        ("虾青素", None),
    ],
)
def test_only_an_object_alone_in_one_fence_is_taken_out_of_it(content: str, text: str | None) -> None:
    assert object_text({"content": content}, "text") == text


@pytest.mark.parametrize("calls", [None, [], [{}], [{"function": {"arguments": {}}}], "x", [1, 2]])
def test_a_call_that_is_none_leaves_the_answer_as_it_is(calls: Any) -> None:
    assert object_text({"content": "x", "tool_calls": calls}, "tool") is None
