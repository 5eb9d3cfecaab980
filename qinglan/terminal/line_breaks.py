"""Let rich break lines between Chinese characters; it breaks at blanks alone, and Chinese has none."""

import re

WIDE = "\u2e80-\u2fff\u3040-\u9fff\uf900-\ufaff"
OPENING, CLOSING = "“‘（《〈「【", "，。；：、！？）》〉」】”’…"
SHORT = 4
"""Chinese characters that brackets hold together, such as （实测）."""

REMARK = rf"[{OPENING}][{WIDE}]{{1,{SHORT}}}[{CLOSING}]+"
WORD = re.compile(
    rf"\s*(?:{REMARK}|[{OPENING}]*(?:[{WIDE}]|[^\s{WIDE}{OPENING}{CLOSING}]+)[{CLOSING}]*"
    rf"|[{OPENING}]+|[{CLOSING}]+)\s*"
)
"""A piece that stays on one line: a Chinese character or a run of others, with marks that must stay beside it."""


def break_between_characters() -> None:
    """Replace rich's own pattern of a word, which it takes from this module when it wraps a line."""
    from rich import _wrap

    _wrap.re_word = WORD
