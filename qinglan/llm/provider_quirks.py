"""Differences between providers' models: the parameters that they accept and the answers that they give.

Read in November 2026:
- OpenAI, reasoning models (gpt-5 and o families): no `max_tokens`; no temperature but 1 while they think
  (developers.openai.com/api/docs/guides/reasoning).
- DeepSeek: `max_tokens` alone; it thinks unless told `thinking: {type: disabled}`, and then a temperature has no
  effect (api-docs.deepseek.com/guides/thinking_mode); an answer may end with `insufficient_system_resource`.
  `response_format` may be json_object and nothing else, json_schema is refused with 400; the prompt must then say
  "JSON" and show the shape (api-docs.deepseek.com/guides/json_mode).
- vLLM: Qwen3 thinks unless told `chat_template_kwargs: {enable_thinking: false}`; without a reasoning parser the
  thoughts stand in the answer, and newer templates leave out their opening tag (docs.vllm.ai, reasoning outputs).
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import orjson

RESERVED_FIELDS = frozenset({
    "model", "messages", "temperature", "max_tokens", "max_completion_tokens", "response_format", "reasoning_effort",
    "stream", "n",
})  # fmt: skip
"""Request fields that have a setting of their own, or none at all."""

INTERRUPTED_FINISH_REASONS = frozenset({"insufficient_system_resource"})
"""Finish reasons of answers that the service broke off; such a failure passes."""

OPENAI_REASONING = re.compile(r"(gpt-5|o\d)(?!.*chat)")
DEEPSEEK = re.compile(r"deepseek-(?!ai/)")
"""Model names of DeepSeek's own API; deepseek-ai/... is what a vLLM calls the weights."""

THOUGHT_BEGINS, THOUGHT_ENDS = "<think>", "</think>"
REFUSAL_PREFIX_CHARACTERS = 200
"""Characters at the start of an answer that refusal patterns are matched with."""


def find_incompatible_setting(
    model: str, temperature: float | None, max_tokens_parameter: str, reasoning_effort: str | None,
    extra_body: Mapping[str, Any],
) -> str:  # fmt: skip
    """Reason why this model would refuse or misread every request, and the remedy; empty when it would not."""
    if taken := sorted(RESERVED_FIELDS & extra_body.keys()):
        return (
            f"extra_body: {', '.join(taken)} cannot be set there: it has a setting of its own, or is ours to choose"
        )
    if OPENAI_REASONING.match(model):
        if max_tokens_parameter == "max_tokens":
            return f"{model} refuses `max_tokens`: set max_tokens_parameter: max_completion_tokens"
        if temperature not in (None, 1) and reasoning_effort != "none":
            return f"{model} thinks and refuses a temperature: set temperature: null"
    if DEEPSEEK.match(model):
        if max_tokens_parameter != "max_tokens":
            return f"{model} knows only `max_tokens`, else no limit holds: set max_tokens_parameter: max_tokens"
        if temperature is not None and _deepseek_thinks(model, extra_body):
            return (
                f"{model} thinks, so a temperature has no effect: set temperature: null, "
                "or extra_body: {thinking: {type: disabled}}"
            )
    return ""


def _deepseek_thinks(model: str, extra_body: Mapping[str, Any]) -> bool:
    """True unless thinking is disabled; deepseek-chat was the name of a model that does not think."""
    thinking = extra_body.get("thinking")
    return model != "deepseek-chat" and not (isinstance(thinking, Mapping) and thinking.get("type") == "disabled")


def adapt_request(
    model: str, messages: Sequence[Mapping[str, Any]], response_format: Mapping[str, Any]
) -> tuple[list[Mapping[str, Any]], Mapping[str, Any]]:
    """Messages and response_format as this model takes them: DeepSeek reads a JSON schema in the prompt alone."""
    if not (DEEPSEEK.match(model) and response_format.get("type") == "json_schema"):
        return list(messages), response_format
    schema = orjson.dumps(response_format["json_schema"].get("schema", {})).decode()
    rule = {"role": "system", "content": f"只返回一个JSON对象，不要其他内容。它符合这个JSON Schema：{schema}"}
    first_user = next((at for at, message in enumerate(messages) if message.get("role") == "user"), len(messages))
    return [*messages[:first_user], rule, *messages[first_user:]], {"type": "json_object"}


def clean_completion(raw: bytes, strip_thinking: bool, refusal_patterns: Sequence[str]) -> bytes:
    """The completion for callers: without thoughts, and with a refusal in words marked as a refusal.

    The journal keeps what was received, so other settings can be applied to the same answer at no cost.
    """
    if not (strip_thinking or refusal_patterns):
        return raw
    completion = orjson.loads(raw)
    message = completion["choices"][0]["message"]
    if isinstance(text := message.get("content"), str):
        message["content"] = text = strip_thoughts(text) if strip_thinking else text
        if is_refusal(text, refusal_patterns):
            message["refusal"] = text
    return orjson.dumps(completion)


def strip_thoughts(text: str) -> str:
    """Text after the thoughts, or before thoughts that never ended."""
    _, ended, answer = text.rpartition(THOUGHT_ENDS)
    if ended:
        return answer.strip()
    return text.partition(THOUGHT_BEGINS)[0].strip() if THOUGHT_BEGINS in text else text


def is_refusal(text: str, patterns: Sequence[str]) -> bool:
    beginning = text.strip()[:REFUSAL_PREFIX_CHARACTERS]
    return any(re.match(pattern, beginning) for pattern in patterns)
