"""What is no rewrite at all, whatever it retrieves: nothing, markup, a copy. It gets the floor."""

import re
from collections.abc import Iterable
from functools import lru_cache

from qinglan.llm.client import LONGEST_LINE
from qinglan.reward.episode import Hit, Prompt
from qinglan.text import CONTROL, normalise

FLOOR = -1.0

COPIED = 14
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
plain = lru_cache(1 << 14)(normalise)


def answer(text: str) -> str:
    """What the model wrote, without the mark that ends its turn."""
    return ENDINGS.sub("", text).strip()


def empty(rewrite: str) -> bool:
    return len(plain(rewrite)) < SHORTEST


def malformed(rewrite: str) -> bool:
    """Several lines, chat markup, JSON, a label, half a character, or longer than a query may be."""
    return bool(len(rewrite) > LONGEST_LINE or CONTROL.search(rewrite) or MARKUP.search(rewrite))


def copied(rewrite: str, prompt: Prompt, hits: Iterable[Hit]) -> bool:
    """A stretch of the history or of a passage, word for word, that neither the question nor a heading holds."""
    hits = tuple(hits)
    own = plain(rewrite)
    free = [plain(text) for text in (prompt.question, prompt.need, *(hit.heading for hit in hits))]
    sources = [plain(prompt.history_summary), *(plain(hit.content) for hit in hits)]
    pieces = (own[at : at + COPIED] for at in range(len(own) - COPIED + 1))
    return any(_in(piece, sources) and not _in(piece, free) for piece in pieces)


def _in(piece: str, texts: list[str]) -> bool:
    return any(piece in text for text in texts)
