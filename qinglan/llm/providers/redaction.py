"""Removes a key from a text, also if its characters are escaped."""

import re
from collections.abc import Callable

SHORTEST_KEY = 8
"""Shortest key that is removed, in characters; a shorter one could be a common word."""


def key_remover(key: str) -> Callable[[str], str]:
    r"""Create a function that replaces the key in a text by [key], also if letters are escaped as \u0073 or %73."""
    if len(key) < SHORTEST_KEY:
        return lambda text: text
    spelled = re.compile("".join(map(_any_spelling, key)))
    return lambda text: spelled.sub("[key]", text)


def _any_spelling(letter: str) -> str:
    """Return the pattern of one character: plain, escaped once or several times in JSON, or escaped in a URL or in
    HTML."""
    # The number of backslashes is limited. Otherwise the time for an answer of backslashes would grow with their
    # square.
    code = ord(letter)
    digits = "".join(f"[{digit}{digit.upper()}]" if digit.isalpha() else digit for digit in f"{code:02x}")
    spellings = (
        rf"\\{{0,4}}{re.escape(letter)}",
        rf"\\{{1,4}}(?:u00|x){digits}",
        f"%{digits}",
        f"&#(?:{code}|[xX]{digits});",
    )
    return f"(?:{'|'.join(spellings)})"
