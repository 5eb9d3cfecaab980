"""Check for texts that are not rewrites and get the lowest reward (the floor): empty, malformed or copied texts."""

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
    """Remove the special tokens and spaces that end a model's turn."""
    return ENDINGS.sub("", text).strip()


def is_empty(rewrite: str) -> bool:
    return len(normalise(rewrite)) < SHORTEST


def is_malformed(rewrite: str) -> bool:
    """Return True for text with line breaks, chat markup, JSON, a label, a broken character, or too much text."""
    return bool(len(rewrite) > MAX_LINE_CHARACTERS or CONTROL.search(rewrite) or MARKUP.search(rewrite))


def is_copied(rewrite: str, prompt: Prompt, hits: Iterable[Hit]) -> bool:
    """Return True if the rewrite copies a stretch of the history or of a passage. A stretch that is also in the
    question, the need or a heading does not count."""
    hits = tuple(hits)
    free = (prompt.question, prompt.need, *(hit.heading for hit in hits))
    return text.is_copied(rewrite, free, (prompt.history_summary, *(hit.content for hit in hits)))
