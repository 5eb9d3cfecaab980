"""Let rich break lines between Chinese characters. By itself, it breaks only at blanks, and Chinese text has none."""

import re

WIDE = "\u2e80-\u2fff\u3040-\u9fff\uf900-\ufaff"
OPENING, CLOSING = "“‘（《〈「【", "，。；：、！？）》〉」】”’…"
SHORT = 4
"""Highest number of Chinese characters that stay on one line with their brackets, such as （实测）."""

REMARK = rf"[{OPENING}][{WIDE}]{{1,{SHORT}}}[{CLOSING}]+"
WORD = re.compile(
    rf"\s*(?:{REMARK}|[{OPENING}]*(?:[{WIDE}]|[^\s{WIDE}{OPENING}{CLOSING}]+)[{CLOSING}]*"
    rf"|[{OPENING}]+|[{CLOSING}]+)\s*"
)
"""Pattern of a piece that stays on one line: a Chinese character or a word, with the marks that belong to it."""


def break_between_characters() -> None:
    """Replace the pattern by which rich divides a line into words."""
    # rich.wrap has no setting for this (rich/_wrap.py, divide_line).
    from rich import _wrap

    _wrap.re_word = WORD
