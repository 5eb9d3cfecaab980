"""Checks if an answer can be used. If it cannot, the gateway may repeat the call, and clients raise a RowError."""

from typing import Any

import orjson

from qinglan.errors import RowError
from qinglan.llm.config import PaidModel
from qinglan.llm.provider_quirks import clean_completion
from qinglan.text.text import is_blank

MAX_LINE_CHARACTERS = 1_000
"""Largest number of characters in a rewrite or a need; the RAG contract refuses queries of more than 4,000."""

CUT = "length"
"""Finish reason of an answer that was cut at its length limit."""


def cleaned_answer(raw: bytes, model: PaidModel) -> bytes:
    """Clean a received completion for callers, by the settings of its model."""
    return clean_completion(raw, model.strip_thinking, model.refusal_patterns, model.structured_answers)


def is_usable(raw: bytes, model: PaidModel, structured: bool) -> bool:
    try:
        usable_text(orjson.loads(cleaned_answer(raw, model)), structured)
    except (RowError, orjson.JSONDecodeError):
        return False
    return True


def is_cut(raw: bytes) -> bool:
    """Check if a received completion was cut at its length limit. Under a higher limit it could be complete."""
    try:
        return bool(orjson.loads(raw)["choices"][0].get("finish_reason") == CUT)
    except (orjson.JSONDecodeError, LookupError, TypeError, AttributeError):
        return False


def usable_text(completion: dict[str, Any], structured: bool) -> str:
    """Return the text of a completion; a RowError says why it has no usable text."""
    raw = orjson.dumps(completion).decode()
    try:
        choice = completion["choices"][0]
        message, finish = choice["message"], choice.get("finish_reason")
        refusal, text = message.get("refusal"), message.get("content") or ""
    except (KeyError, IndexError, TypeError, AttributeError) as error:
        raise RowError("malformed", "The completion has no message.", raw) from error
    # The order matters: a refusal or a cut answer may hold text, and must not count as an answer.
    if refusal or finish == "content_filter":
        raise RowError("refused", f"The model refused: {refusal or 'content filter'}", raw)
    if finish == CUT:
        raise RowError("truncated", "The answer was cut at the model's max_output_tokens; raise it.", raw)
    if not isinstance(text, str) or is_blank(text):
        raise RowError("empty", "The model answered with nothing.", raw)
    if structured:
        try:
            is_object = isinstance(orjson.loads(text), dict)
        except orjson.JSONDecodeError:
            is_object = False
        if not is_object:
            raise RowError("malformed", "The answer is not the JSON object that was asked for.", raw)
    elif len(as_line(text)) > MAX_LINE_CHARACTERS:
        raise RowError("too long", f"The answer has more than {MAX_LINE_CHARACTERS} characters.", text)
    return text


def as_line(text: str) -> str:
    """Join the lines of a text, because models tend to break lines."""
    return " ".join(text.split())
