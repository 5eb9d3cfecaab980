"""Pure functions for the costs of calls: actual, worst and estimated."""

from typing import Any, NamedTuple

from qinglan.llm.config import Price

MILLION = 1_000_000
TOKENS_PER_WIDE_CHARACTER = 0.8
"""Estimated tokens per Chinese character; the vocabularies of today's models give 0.7 to 1."""

MOST_TOKENS = 10**9
"""Largest number of tokens that a service may report for one answer; a larger number is taken for a mistake."""

CHARACTERS_PER_TOKEN = 4
"""Estimated characters of ASCII text per token."""


class Usage(NamedTuple):
    """Tokens of one answer, as the service counted them."""

    input: int = 0
    cached: int = 0
    """Part of the input that the service had in its own cache."""

    output: int = 0
    """Output tokens, including reasoning, which is billed as output."""

    reasoning: int = 0


def cost(price: Price, input: int, output: int, cached: int = 0) -> float:
    """Compute the cost of a call's tokens; `cached` is the part of the input that is billed at the cached price."""
    return ((input - cached) * price.input + cached * price.cached_input + output * price.output) / MILLION


def worst_cost(price: Price, request: bytes, max_output: int) -> float:
    """Compute the largest possible cost of a call. Its bytes count as tokens, since a text never has more tokens than
    UTF-8 bytes."""
    # A service decides which tokens it has cached, so the higher of both prices is used.
    dearest = max(price.input, price.cached_input)
    return (len(request) * dearest + max_output * price.output) / MILLION


def estimate_tokens(text: str) -> int:
    """Estimate a text's tokens: 0.8 for a Chinese character, a quarter for an ASCII character. A text may have
    more."""
    narrow = len(text.encode("ascii", "ignore"))
    return round(narrow / CHARACTERS_PER_TOKEN + (len(text) - narrow) * TOKENS_PER_WIDE_CHARACTER)


def read_usage(completion: dict[str, Any]) -> Usage | None:
    """Read the tokens that a completion reports; None if the report is missing or contradicts itself."""
    usage = completion.get("usage")
    if not isinstance(usage, dict):
        return None
    details = usage.get("prompt_tokens_details") or {}
    spent = usage.get("completion_tokens_details") or {}
    numbers = Usage(
        _count(usage, "prompt_tokens"),
        _count(details, "cached_tokens"),
        _count(usage, "completion_tokens"),
        _count(spent, "reasoning_tokens"),
    )
    adds_up = (
        min(numbers) >= 0 and max(numbers) <= MOST_TOKENS and numbers.cached <= numbers.input and numbers.input > 0
    )
    return numbers if adds_up else None


def _count(values: Any, name: str) -> int:
    """Read a token count; 0 if it is missing, and -1, which read_usage refuses, if it is not a whole number."""
    value = values.get(name) if isinstance(values, dict) else None
    if value is None:
        return 0
    return value if isinstance(value, int) else -1
