"""Checks for texts that are no rewrite and get the floor reward: empty, malformed or copied."""

import re
from collections.abc import Iterable
from functools import lru_cache

from qinglan.llm.client import MAX_LINE_CHARACTERS
from qinglan.reward.episode import Hit, Prompt
from qinglan.text import CONTROL, normalise

FLOOR = -1.0

MIN_COPIED_CHARACTERS = 14
"""Shortest stretch that counts as copied, in characters without punctuation; longer than a name."""

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
cached_normalise = lru_cache(1 << 14)(normalise)


def strip_turn_end(text: str) -> str:
    """Remove the marks that end the model's turn."""
    return ENDINGS.sub("", text).strip()


def is_empty(rewrite: str) -> bool:
    return len(cached_normalise(rewrite)) < SHORTEST


def is_malformed(rewrite: str) -> bool:
    """True for several lines, chat markup, JSON, a label, half a character, or a text longer than a query may be."""
    return bool(len(rewrite) > MAX_LINE_CHARACTERS or CONTROL.search(rewrite) or MARKUP.search(rewrite))


def is_copied(rewrite: str, prompt: Prompt, hits: Iterable[Hit]) -> bool:
    """True if it copies a stretch of the history or a passage that neither the question nor a heading holds."""
    hits = tuple(hits)
    normalised = cached_normalise(rewrite)
    free = [cached_normalise(text) for text in (prompt.question, prompt.need, *(hit.heading for hit in hits))]
    sources = [cached_normalise(prompt.history_summary), *(cached_normalise(hit.content) for hit in hits)]
    pieces = (
        normalised[at : at + MIN_COPIED_CHARACTERS] for at in range(len(normalised) - MIN_COPIED_CHARACTERS + 1)
    )
    return any(_in(piece, sources) and not _in(piece, free) for piece in pieces)


def _in(piece: str, texts: list[str]) -> bool:
    return any(piece in text for text in texts)
