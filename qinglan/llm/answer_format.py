"""Ways to ask a model for a JSON object, by what its provider supports; callers get every answer in the same form.

| format | the request has | the object comes as |
|---|---|---|
| json_schema | response_format with the schema, which the provider enforces | the answer |
| json_object | response_format json_object, and the schema in the prompt | the answer |
| tool | one function with the schema, which must be called | the call's arguments |
| text | the schema in the prompt only | the answer, bare or in one code fence |

DeepSeek refuses json_schema with 400 (api-docs.deepseek.com/guides/json_mode, November 2026). The other hosts below
were not tried: `qinglan doctor --paid` tries a model with one cheap call.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal
from urllib.parse import urlsplit

import orjson

AnswerFormat = Literal["json_schema", "json_object", "tool", "text"]

HOST_FORMATS: Mapping[str, AnswerFormat] = {
    "api.deepseek.com": "json_object",
    "api.moonshot.cn": "json_object",
    "open.bigmodel.cn": "json_object",
    "dashscope.aliyuncs.com": "json_object",
    "api.siliconflow.cn": "json_object",
}
"""Default format of hosts that support only the older `json_object`; the default of all other hosts is
`json_schema`."""

DEEPSEEK = re.compile(r"deepseek-(?!ai/)")
"""Pattern for model names of DeepSeek's own API, also behind a proxy. Names such as `deepseek-ai/...` do not match,
because vLLM uses them for the published weights."""

FENCED = re.compile(r"\s*```(?:json)?\s*\n(.*?)\n?\s*```\s*", re.DOTALL)


def default_format(base_url: str, model: str) -> AnswerFormat:
    """Return the default answer format for a host and a model, which is used if the settings name none."""
    if DEEPSEEK.match(model):
        return "json_object"
    return HOST_FORMATS.get(urlsplit(base_url).hostname or "", "json_schema")


def request_fields(
    answer_format: AnswerFormat, messages: Sequence[Mapping[str, Any]], response_format: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the request fields that ask for a JSON object with the schema in `response_format`."""
    if answer_format == "json_schema" or response_format.get("type") != "json_schema":
        return {"messages": list(messages), "response_format": response_format}
    schema = response_format["json_schema"]
    if answer_format == "tool":
        function = {"name": schema["name"], "parameters": schema.get("schema", {})}
        choice = {"type": "function", "function": {"name": schema["name"]}}
        return {
            "messages": list(messages),
            "tools": [{"type": "function", "function": function}],
            "tool_choice": choice,
        }
    # Providers whose JSON mode takes no schema require the word JSON in the prompt (DeepSeek, json_mode guide).
    text = orjson.dumps(schema.get("schema", {})).decode()
    rule = {"role": "system", "content": f"只返回一个JSON对象，不要其他内容。它符合这个JSON Schema：{text}"}
    first_user = next((at for at, message in enumerate(messages) if message.get("role") == "user"), len(messages))
    explained = {"messages": [*messages[:first_user], rule, *messages[first_user:]]}
    return explained if answer_format == "text" else explained | {"response_format": {"type": "json_object"}}


def object_text(message: Mapping[str, Any], answer_format: AnswerFormat) -> str | None:
    """Return the JSON text in an answer's tool call or code fence; None if the whole text of the answer is to be
    used."""
    content = message.get("content")
    if answer_format == "tool":
        try:
            [call] = message["tool_calls"]
            arguments = call["function"]["arguments"]
        except (TypeError, ValueError, LookupError):  # none, several, or another shape
            return None
        return arguments if isinstance(arguments, str) else None
    if answer_format == "text" and isinstance(content, str) and (fenced := FENCED.fullmatch(content)):
        inner = fenced[1].strip()
        return inner if inner.startswith("{") and "```" not in inner else None
    return None
