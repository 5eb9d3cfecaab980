"""Checks for texts that are no rewrite and get the floor reward: empty, malformed or copied."""

import re
from collections.abc import Iterable

from qinglan.llm.usable_answer import MAX_LINE_CHARACTERS
from qinglan.reward.episode import Hit, Prompt
from qinglan.text import text
from qinglan.text.text import CONTROL, normalise

FLOOR = -1.0

SHORTEST = 2

ENDINGS = re.compile(r"(?:\s|<\|(?:im_end|endoftext)\|>)+$")
MARKUP = re.compile(
    r"</?[A-Za-z|][^<>]*>"  # <|im_start|>, <think>, <b>
    r"|```|\ufffd"
    r"|^[\[{]"  # JSON
    r"|^(?:system|user|assistant)\b"
    r"|^(?:改写(?:后)?的?(?:查询|问题|结果)?|原始查询|查询)\s*[:：]",
    re.IGNORECASE,
)


def strip_turn_end(text: str) -> str:
    """Remove the marks that end the model's turn."""
    return ENDINGS.sub("", text).strip()


def is_empty(rewrite: str) -> bool:
    return len(normalise(rewrite)) < SHORTEST


def is_malformed(rewrite: str) -> bool:
    """True for several lines, chat markup, JSON, a label, a broken character, or more text than a query may have."""
    return bool(len(rewrite) > MAX_LINE_CHARACTERS or CONTROL.search(rewrite) or MARKUP.search(rewrite))


def is_copied(rewrite: str, prompt: Prompt, hits: Iterable[Hit]) -> bool:
    """True if the rewrite copies a stretch of the history or of a passage. A stretch that is also in the question,
    the need or a heading does not count."""
    hits = tuple(hits)
    free = (prompt.question, prompt.need, *(hit.heading for hit in hits))
    return text.is_copied(rewrite, free, (prompt.history_summary, *(hit.content for hit in hits)))
