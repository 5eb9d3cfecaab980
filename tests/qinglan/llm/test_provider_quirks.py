"""Settings that providers' models refuse are known before the first call, and answers are read as they are meant."""

from typing import Any

import orjson
import pytest

from qinglan.errors import ConfigError, RowError
from qinglan.llm.config import PaidModel
from qinglan.llm.provider_quirks import clean_completion, is_refusal, strip_thoughts
from qinglan.llm.usable_answer import usable_text
from tests.servers.echo_servers import PRICE, completion

SORRY = "抱歉，我(不能|无法)"


def model(name: str, **settings: Any) -> PaidModel:
    return PaidModel.parse({"model": name, "price": PRICE, **settings}, "teacher")


@pytest.mark.parametrize(
    ("name", "settings", "mends"),
    [
        ("gpt-5.6-sol", {}, "temperature: null"),
        ("gpt-5.6-sol", {"temperature": None, "max_tokens_parameter": "max_tokens"}, "max_completion_tokens"),
        ("o3", {"temperature": 0.3, "reasoning_effort": "low"}, "temperature: null"),
        ("deepseek-flash", {"temperature": None}, "max_tokens_parameter: max_tokens"),
        ("deepseek-flash", {"max_tokens_parameter": "max_tokens"}, "thinking: {type: disabled}"),
        (
            "deepseek-flash",
            {"max_tokens_parameter": "max_tokens", "temperature": None, "answer_format": "json_schema"},
            "answer_format: json_object",
        ),
        ("echo", {"extra_body": {"temperature": 0.1}}, "setting of its own"),
        ("echo", {"extra_body": {"tools": []}}, "setting of its own"),
        ("echo", {"refusal_patterns": ["抱歉("]}, "regular expression"),
    ],
)
def test_settings_that_a_provider_refuses_are_refused_before_the_first_call(
    name: str, settings: dict[str, Any], mends: str
) -> None:
    with pytest.raises(ConfigError, match=mends.replace("{", r"\{")):
        model(name, **settings)


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("gpt-5.6-sol", {"temperature": None, "reasoning_effort": "low"}),
        ("gpt-5.6-sol", {"temperature": 0.3, "reasoning_effort": "none"}),
        ("gpt-5-chat-latest", {}),
        ("deepseek-flash", {"max_tokens_parameter": "max_tokens", "extra_body": {"thinking": {"type": "disabled"}}}),
        ("deepseek-flash", {"max_tokens_parameter": "max_tokens", "temperature": None}),
        ("deepseek-ai/DeepSeek-V3.1", {}),
        ("Qwen/Qwen3-32B", {"extra_body": {"chat_template_kwargs": {"enable_thinking": False}}}),
    ],
)
def test_settings_that_a_provider_accepts_are_accepted(name: str, settings: dict[str, Any]) -> None:
    assert model(name, **settings).model == name


@pytest.mark.parametrize(
    ("answer", "text_left"),
    [
        ("<think>\n先想想\n</think>\n\n虾青素 频次", "虾青素 频次"),
        ("模板里已有开头</think>虾青素 频次", "虾青素 频次"),
        ("<think>一</think>二<think>三</think>四", "四"),
        ("<think>想了很久，没有想完", ""),
        ("虾青素 频次", "虾青素 频次"),
    ],
)
def test_thoughts_are_no_part_of_an_answer(answer: str, text_left: str) -> None:
    assert strip_thoughts(answer) == text_left


def test_a_refusal_in_plain_words_is_a_refusal_where_the_model_is_known_to_use_them() -> None:
    raw = completion("抱歉，我不能改写这个问题。")

    with pytest.raises(RowError) as error:
        usable_text(orjson.loads(clean_completion(raw, False, (SORRY,))), structured=False)
    assert error.value.reason == "refused"
    assert usable_text(orjson.loads(clean_completion(raw, False, ())), structured=False).startswith("抱歉")


def test_the_thoughts_are_taken_out_before_a_refusal_is_looked_for() -> None:
    raw = clean_completion(completion("<think>这不行</think>抱歉，我无法回答"), True, (SORRY,))

    assert orjson.loads(raw)["choices"][0]["message"]["refusal"] == "抱歉，我无法回答"


DECLINED = [
    "I'm sorry, I can't help with that.",
    "Sorry, I can't do that.",
    "SORRY, BUT I CANNOT ASSIST WITH THAT",
    "I'm sorry, as an AI model I must decline.",
    "I'm unable to help with that request.",
    "Unfortunately, I can't provide that information.",
    "As an AI language model, I have no access to your data.",
    "抱歉，我不能改写这个问题。",
    "很抱歉，我无法回答您的问题",
    "对不起，我没办法提供帮助",
    "我无法回答这个问题。",
    "作为一个人工智能语言模型，我没有权限",
]
QUERIES = [
    "I can't log in to my account",
    "I cannot help my customer reset the password",
    "apologize to a customer, template",
    "sorry state of the load balancer, error 503",
    "as an AI engineer, which GPU instance",
    "reply to: I'm sorry, I can't help with that",
    "我无法完成支付怎么办",
    "我不能提供发票，如何报销",
    "客服说抱歉，我不能退货 怎么办",
    "作为老年人可以吃虾青素吗",
    "虾青素 每日服用频次",
]


@pytest.mark.parametrize("text", DECLINED)
def test_the_usual_ways_to_decline_are_refusals_by_default(text: str) -> None:
    assert is_refusal(f"\n {text}", model("echo").refusal_patterns)


@pytest.mark.parametrize("text", QUERIES)
def test_a_query_that_sounds_like_a_refusal_is_a_rewrite(text: str) -> None:
    raw = completion(text)

    assert not is_refusal(text, model("echo").refusal_patterns)
    assert clean_completion(raw, False, model("echo").refusal_patterns) is raw, "the bytes stay what was received"
