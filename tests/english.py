"""English that is left in a Chinese text: two words of it beside each other, neither a name nor a part of a list."""

import re

NAME = r"[^\s`'\"，。；：、（）“”]"
KEPT = re.compile(
    rf"`[^`]*`|'[^']*'|\"[^\"]*\"|“[^”]*”|\{{.*\}}|--[\w-]+( [A-Z]+)*|{NAME}*[/_=@:\\]{NAME}*|\b[\w-]+(\.[\w-]+)+\b"
)
"""What a text quotes or names: commands, options with their values, paths, addresses, settings."""

WORDS = re.compile(r"(?<![\w-])[A-Za-z]*[a-z]{2,} [a-z]{2,}(?![\w-])")


def english_left(text: str) -> list[str]:
    """The lines of a text in which English is left."""
    return [line.strip() for line in text.splitlines() if WORDS.search(KEPT.sub(" · ", line))]
