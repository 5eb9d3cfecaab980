"""What is no rewrite at all, whatever it retrieves: nothing, markup, a copy. It gets the floor."""

import re
from collections.abc import Iterable
from functools import lru_cache

from qinglan.llm.client import MAX_LINE_CHARACTERS
from qinglan.reward.episode import Hit, Prompt
from qinglan.text import CONTROL, normalise

FLOOR = -1.0

MIN_COPIED_CHARACTERS = 14
"""Characters in a row, punctuation aside: more than a name, a copy."""

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
    """What the model wrote, without the mark that ends its turn."""
    return ENDINGS.sub("", text).strip()


def is_empty(rewrite: str) -> bool:
    return len(cached_normalise(rewrite)) < SHORTEST


def is_malformed(rewrite: str) -> bool:
    """Several lines, chat markup, JSON, a label, half a character, or longer than a query may be."""
    return bool(len(rewrite) > MAX_LINE_CHARACTERS or CONTROL.search(rewrite) or MARKUP.search(rewrite))


def is_copied(rewrite: str, prompt: Prompt, hits: Iterable[Hit]) -> bool:
    """A stretch of the history or of a passage, word for word, that neither the question nor a heading holds."""
    hits = tuple(hits)
    own = cached_normalise(rewrite)
    free = [cached_normalise(text) for text in (prompt.question, prompt.need, *(hit.heading for hit in hits))]
    sources = [cached_normalise(prompt.history_summary), *(cached_normalise(hit.content) for hit in hits)]
    pieces = (own[at : at + MIN_COPIED_CHARACTERS] for at in range(len(own) - MIN_COPIED_CHARACTERS + 1))
    return any(_in(piece, sources) and not _in(piece, free) for piece in pieces)


def _in(piece: str, texts: list[str]) -> bool:
    return any(piece in text for text in texts)
