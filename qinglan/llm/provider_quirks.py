"""Handles differences between providers' models: the parameters that they accept, and the answers that they give.

Read in November 2026:
- OpenAI, reasoning models (gpt-5 and o families): no `max_tokens`; no temperature but 1 while they think
  (developers.openai.com/api/docs/guides/reasoning).
- DeepSeek: only `max_tokens`; it thinks unless `thinking: {type: disabled}` is sent, and then a temperature has no
  effect (api-docs.deepseek.com/guides/thinking_mode); an answer may end with `insufficient_system_resource`.
  Its form of structured answers: answer_format.py.
- vLLM: Qwen3 thinks unless `chat_template_kwargs: {enable_thinking: false}` is sent; without a reasoning parser the
  answer holds the thoughts, and newer templates leave out their opening tag (docs.vllm.ai, reasoning outputs).
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

import orjson

from qinglan.llm.answer_format import DEEPSEEK, AnswerFormat, object_text
from qinglan.llm.host_allowlist import is_loopback

RESERVED_FIELDS = frozenset({
    "model", "messages", "temperature", "max_tokens", "max_completion_tokens", "response_format", "reasoning_effort",
    "stream", "n", "tools", "tool_choice",
})  # fmt: skip
"""Request fields that `extra_body` may not hold, because a setting exists for them or the gateway chooses them."""

INTERRUPTED_FINISH_REASONS = frozenset({"insufficient_system_resource"})
"""Finish reasons of answers that the service broke off; such a failure is temporary."""

HOSTS_WITHOUT_BATCHES = frozenset({"api.deepseek.com"})
"""Hosts whose documentation names no batch API (api-docs.deepseek.com, November 2026)."""

OPENAI_REASONING = re.compile(r"(gpt-5|o\d)(?!.*chat)")

CANNOT = "(can['’]?t|cannot|can not|won['’]?t|will not|am unable to|am not able to|['’]m unable to|['’]m not able to)"
REFUSALS = (
    "(很|非常|十分)?(抱歉|对不起|不好意思)[，,。！!\\s]*(但|但是)?我?(不能|无法|没办法|没有办法|不便)",
    "我(不能|无法|不便)(帮助|协助|回答|满足|改写)(这|该|此|你|您)",
    "作为(一个|一名)?(AI|人工智能)(语言)?(模型|助手|助理|，|,)",
    f"(?i)((i['’]?m|i am|we are|we['’]?re) )?((very|so|really|truly) )?sorry[,.!]? *(but )?((i|we) ?{CANNOT}|as an )",
    f"(?i)(unfortunately, )?(i|we) ?{CANNOT} (help|assist|comply|fulfil|fulfill|provide|answer|rewrite|do) "
    "(you )?(with )?(this|that|your request|the request)\\b",
    "(?i)as an? (ai|artificial intelligence|large language)( language)?( model| assistant|,)",
)
"""Patterns for the beginning of answers that refuse in words: an apology, or a statement that help is not possible. A
search query such as `I cannot log in` does not match."""

THOUGHT_BEGINS, THOUGHT_ENDS = "<think>", "</think>"
REFUSAL_PREFIX_CHARACTERS = 200
"""Characters at the start of an answer that refusal patterns are matched with."""


def find_incompatible_setting(settings: Mapping[str, Any]) -> str:
    """Explain why this model would refuse or misread every request, with the remedy; empty if the settings fit the
    model."""
    model, limit, extra_body = settings["model"], settings["max_tokens_parameter"], settings["extra_body"]
    if fixed := sorted(RESERVED_FIELDS & extra_body.keys()):
        return (
            f"extra_body: {', '.join(fixed)} cannot be set there: it has a setting of its own, or is ours to choose"
        )
    if OPENAI_REASONING.match(model):
        if limit == "max_tokens":
            return f"{model} refuses `max_tokens`: set max_tokens_parameter: max_completion_tokens"
        if settings["temperature"] not in (None, 1) and settings["reasoning_effort"] != "none":
            return f"{model} thinks and refuses a temperature: set temperature: null"
    if DEEPSEEK.match(model):
        if settings["answer_format"] == "json_schema":
            return f"{model} refuses a JSON schema with 400: set answer_format: json_object, or leave it out"
        if limit != "max_tokens":
            return f"{model} knows only `max_tokens`, else no limit holds: set max_tokens_parameter: max_tokens"
        thinking = extra_body.get("thinking")
        is_disabled = isinstance(thinking, Mapping) and thinking.get("type") == "disabled"
        # deepseek-chat was the name of a model that does not think.
        if settings["temperature"] is not None and model != "deepseek-chat" and not is_disabled:
            return (
                f"{model} thinks, so a temperature has no effect: set temperature: null, "
                "or extra_body: {thinking: {type: disabled}}"
            )
    return ""


def has_batches(base_url: str) -> bool:
    """False for hosts without a batch API: HOSTS_WITHOUT_BATCHES, and any service on this machine, such as vLLM."""
    host = urlsplit(base_url).hostname or ""
    return host not in HOSTS_WITHOUT_BATCHES and not is_loopback(host)


def clean_completion(
    raw: bytes, strip_thinking: bool, refusal_patterns: Sequence[str], answer_format: AnswerFormat = "json_schema"
) -> bytes:
    """Prepare a completion for callers: remove thoughts, mark a refusal in words, and put JSON from a tool call or a
    code fence into the text.

    The journal stores the bytes as received, so that other settings can be applied to the same answer at no cost.
    """
    if not (strip_thinking or refusal_patterns or answer_format in ("tool", "text")):
        return raw
    completion = orjson.loads(raw)
    message = completion["choices"][0]["message"]
    received = dict(message)
    if strip_thinking and isinstance(text := message.get("content"), str):
        message["content"] = strip_thoughts(text)
    if (answer := object_text(message, answer_format)) is not None:
        message["content"] = answer
    if isinstance(text := message.get("content"), str) and is_refusal(text, refusal_patterns):
        message["refusal"] = text
    return raw if message == received else orjson.dumps(completion)


def strip_thoughts(text: str) -> str:
    """Return the text after the thoughts; if the thoughts never end, return the text before them."""
    # Newer chat templates of Qwen3 put <think> into the prompt, so an answer may hold only the closing tag.
    _, ended, answer = text.rpartition(THOUGHT_ENDS)
    if ended:
        return answer.strip()
    return text.partition(THOUGHT_BEGINS)[0].strip() if THOUGHT_BEGINS in text else text


def is_refusal(text: str, patterns: Sequence[str]) -> bool:
    beginning = text.strip()[:REFUSAL_PREFIX_CHARACTERS]
    return any(re.match(pattern, beginning) for pattern in patterns)
