"""What providers say to parameters that a model of theirs does not take; a model's name says whose it is."""

import re
from typing import Any, NamedTuple

REASONING = re.compile(r"(gpt-5|o\d)(?!.*chat)")
DEEPSEEK = re.compile(r"deepseek-(?!ai/)")


class ParameterRejection(NamedTuple):
    """As OpenAI's 400 has it."""

    message: str
    code: str


def check_parameters(asked: dict[str, Any]) -> ParameterRejection | None:
    """Why the named provider would refuse these parameters."""
    shape = asked.get("response_format") or {}
    if DEEPSEEK.match(asked["model"]) and shape.get("type") == "json_schema":
        return ParameterRejection("This response_format type is unavailable now", "invalid_request_error")
    if not REASONING.match(asked["model"]):
        return None
    if "max_tokens" in asked:
        return ParameterRejection(
            "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' "
            "instead.", "unsupported_parameter",
        )  # fmt: skip
    temperature = asked.get("temperature", 1)
    if temperature != 1 and asked.get("reasoning_effort") != "none":
        return ParameterRejection(
            f"Unsupported value: 'temperature' does not support {temperature} with this model. Only the default (1) "
            "value is supported.", "unsupported_value",
        )  # fmt: skip
    return None


def read_max_tokens(asked: dict[str, Any]) -> int:
    """What an answer may take. DeepSeek does not know the newer name, and says nothing."""
    newer = None if DEEPSEEK.match(asked["model"]) else asked.get("max_completion_tokens")
    most = newer or asked.get("max_tokens")
    return most if isinstance(most, int) and most > 0 else 1_000_000
