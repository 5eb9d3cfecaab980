"""English that is left in a Chinese text: two words of it beside each other, neither a name nor a part of a list."""

import re

from qinglan.messages import chinese

NAME = r"[^\s`'\"，。；：、（）“”]"
QUOTED = re.compile(
    rf"`[^`]*`|'[^']*'|\"[^\"]*\"|“[^”]*”|\{{.*\}}|--[\w-]+( [A-Z]+)*|{NAME}*[/_=@:\\]{NAME}*|\b[\w-]+(\.[\w-]+)+\b"
)
"""Parts of a text that quote or name: commands, options with their values, paths, addresses, settings."""

WORDS = re.compile(r"(?<![\w-])[A-Za-z]*[a-z]{2,} [a-z]{2,}(?![\w-])")


LONE = re.compile(r"（([a-z]+)）|^\s*([A-Z][a-z]+):$|^[a-z]+\s{2,}([a-z]+)$")
"""A single word: in full-width brackets, as a heading, or as the outcome of a stage."""

HALF_WIDTH = re.compile(r"\d [\u4e00-\u9fff]+[,;] |[\u4e00-\u9fff]\. ")
"""A mark of English behind Chinese words of ours; in a list of a user's columns it may stand."""


def english_left(text: str) -> list[str]:
    """The lines of a text in which English is left, or a mark of it."""
    return [line.strip() for line in text.splitlines() if _is_english(line)]


def _is_english(line: str) -> bool:
    left = QUOTED.sub(" · ", line)
    lone = LONE.search(line)
    known = lone and any(chinese().entries.get(word or "", word) != word for word in lone.groups())
    return bool(WORDS.search(left) or known or HALF_WIDTH.search(left))
