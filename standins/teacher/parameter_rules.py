"""Errors of providers about parameters that a model does not support; the model's name implies the provider."""

import re
from collections.abc import Collection
from typing import Any, NamedTuple

REASONING = re.compile(r"(gpt-5|o\d)(?!.*chat)")
DEEPSEEK = re.compile(r"deepseek-(?!ai/)")


class ParameterRejection(NamedTuple):
    """Message and code of an error answer with status 400, in OpenAI's format."""

    message: str
    code: str


def check_parameters(parameters: dict[str, Any], formats: Collection[str]) -> ParameterRejection | None:
    """Return the provider's error for these parameters, or None if they are supported.

    `formats` are the formats of structured answers that this server supports.
    """
    shape = parameters.get("response_format") or {}
    kind = shape.get("type", "tool" if parameters.get("tools") else "text")
    if kind not in (*formats, "text") or (kind == "json_schema" and DEEPSEEK.match(parameters["model"])):
        return ParameterRejection(f"This {'tools' if kind == 'tool' else 'response_format type'} is unavailable now",
                                  "invalid_request_error")  # fmt: skip
    if kind == "json_object" and not any("json" in message["content"].lower() for message in parameters["messages"]):
        return ParameterRejection(
            "Prompt must contain the word 'json' in some form to use 'response_format' of type 'json_object'.",
            "invalid_request_error",
        )
    if not REASONING.match(parameters["model"]):
        return None
    if "max_tokens" in parameters:
        return ParameterRejection(
            "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' "
            "instead.", "unsupported_parameter",
        )  # fmt: skip
    temperature = parameters.get("temperature", 1)
    if temperature != 1 and parameters.get("reasoning_effort") != "none":
        return ParameterRejection(
            f"Unsupported value: 'temperature' does not support {temperature} with this model. Only the default (1) "
            "value is supported.", "unsupported_value",
        )  # fmt: skip
    return None


def read_max_tokens(parameters: dict[str, Any]) -> int:
    """Read the limit of an answer's tokens. DeepSeek's models ignore `max_completion_tokens` without an error."""
    newer = None if DEEPSEEK.match(parameters["model"]) else parameters.get("max_completion_tokens")
    most = newer or parameters.get("max_tokens")
    return most if isinstance(most, int) and most > 0 else 1_000_000
