"""The training's judge under another name is no second opinion."""

import pytest

from qinglan.llm.providers.model_names import plain_model_name, same_model

SAME = [
    ("gpt-4o", "GPT-4o"), ("gpt-4o", " gpt-4o\n"), ("gpt-4o", "gpt-4o-2024-08-06"), ("gpt-4o", "gpt-4o-latest"),
    ("gpt-4o", "openai/gpt-4o"), ("gpt-4o", "openrouter/openai/gpt-4o:free"), ("gpt-4o", "ｇｐｔ－４ｏ"),
    ("gpt-4o", "gpt\u200b-4o"), ("gpt-4o", "\u2060gpt-4o\ufeff"), ("gpt-4o", "gpt-4\u00ado"),
    ("gpt-4o", "g\u202ept-4o"), ("gpt-4o", "gpt\u20114o"), ("gpt-4o", "gpt_4o"),
    ("gpt-4o", "gpt 4o"), ("gpt-4o", "gpt-4\u043e"), ("gpt-4o", "g\u0440t-4o"), ("gpt-4o", "gpt-4o\u3164"),
    ("gpt-4", "gpt-4-0613"), ("gpt-4", "gpt-4-1106-preview"), ("gpt-3.5-turbo", "gpt-35-turbo"),
    ("claude-3-5-sonnet", "claude-3.5-sonnet"), ("claude-3-5-sonnet", "claude-3-5-sonnet-20241022"),
    ("claude-3-5-sonnet", "us.anthropic.claude-3-5-sonnet-20241022-v2:0"),
    ("claude-3-5-sonnet", "claude-3-5-sonnet@20240620"), ("gemini-1.5-pro", "models/gemini-1.5-pro-002"),
    ("gemini-2.5-flash", "gemini-2.5-flash-preview-09-2025"), ("gemini-2.5-pro", "gemini-2.5-pro-exp-03-25"),
    ("deepseek-v3", "deepseek-v3-0324"), ("mistral-large", "mistral-large-2407"), ("glm-4", "glm-4-0520"),
    ("doubao-1-5-pro-32k", "doubao-1.5-pro-32k-250115"), ("Qwen/Qwen3-32B", "qwen3:32b"),
    ("Qwen/Qwen3-32B", "Qwen/Qwen3-32B-FP8"), ("Qwen/Qwen3-32B", "vendor/Qwen3-32B-AWQ"),
]  # fmt: skip
DIFFERENT = [
    ("gpt-4o", "gpt-4o-mini"), ("gpt-4o", "gpt-4"), ("gpt-4.1", "gpt-4"), ("gpt-5", "gpt-5.1"),
    ("claude-3-5-sonnet", "claude-3-7-sonnet"), ("claude-3-5-sonnet", "claude-3-5-haiku"),
    ("qwen3-32b", "qwen3-235b-a22b"), ("qwen2.5-7b", "qwen2.5-72b"), ("deepseek-v3", "deepseek-r1"),
    ("deepseek-chat", "deepseek-reasoner"), ("gemini-1.5-pro", "gemini-1.5-flash"), ("glm-4", "glm-4-flash"),
    ("评审模型", "考官模型"), ("model-a", "model-b"), ("fivedoctors", "fivedoctors-examiner"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "other"), SAME)
def test_one_model_under_two_names_is_one(name: str, other: str) -> None:
    assert same_model(name, other) and same_model(other, name)


@pytest.mark.parametrize(("name", "other"), DIFFERENT)
def test_two_models_are_two(name: str, other: str) -> None:
    assert not same_model(name, other)


@pytest.mark.parametrize("name", [None, "", " ", "\u200b", 7, [], "///", "--", "\u3164"])
def test_what_is_no_name_is_unknown(name: object) -> None:
    assert plain_model_name(name) == ""


@pytest.mark.parametrize("name", ["1106", "latest", "2024-08-06", "preview-latest"])
def test_a_name_of_nothing_but_a_version_stays_a_name(name: str) -> None:
    assert plain_model_name(name)
