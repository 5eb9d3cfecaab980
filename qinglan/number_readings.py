"""Other ways to write the numbers of a text: who says 3 pm may mean 15:00, and 两千三 is 2300.

other_readings("十二点半")      {"30"}              a rewrite may say 12:30
other_readings("九八年")        {"1998", "2098"}
"""

import re
from collections.abc import Iterable
from decimal import Decimal
from functools import lru_cache

from qinglan.numerals import (
    A_NUMBER,
    DIGITS,
    DOZEN,
    MYRIADS,
    UNITS,
    all_numbers,
    canonical_number,
    count_value,
    dozens,
    normalise_numerals,
    spelled_value,
    written_numbers,
)

CACHED_SOURCES = 1 << 10
MINUTES = {re.compile("[点时]半|half past"): "30", re.compile("一刻|quarter"): "15", re.compile("三刻"): "45"}
SHARES = {re.compile(r"半|\bhalf\b"): ("0.5", "50"), re.compile(r"\bquarter\b|四分之一"): ("0.25", "25")}
AFTERNOON = re.compile(
    rf"(?:下午|傍晚|晚上?)({A_NUMBER})[点时:]|(?<!\d)({A_NUMBER})(?::\d\d)?\s?p\.?m\b", re.IGNORECASE
)
YEAR = re.compile(r"(?<!\d)(?:1[89]|20)(\d\d)(?!\d)")
SHORT_YEAR = re.compile(r"(?<!\d)(\d\d)(?:年|'?s\b)|([零〇一二三四五六七八九]{2})年")
COLLOQUIAL = re.compile("([一二两三四五六七八九])(?:([百千万])|[米块元])([一二三四五六七八九])(?![十百千万亿])")
"""两千三 is 2300 and 一米三 is 1.3: the unit of the last digit is left out."""

LOOSE_DOZEN = re.compile(DOZEN.pattern.removesuffix(r"(?!\w)"))
"""一打多少钱 speaks of twelve; that 一打电话 does not can stay unknown."""

ORDINALS = "first second third fourth fifth sixth seventh eighth ninth tenth eleventh twelfth"
ORDINAL_VALUES = {word: str(value) for value, word in enumerate(ORDINALS.split(), 1)}
ORDINAL = re.compile(rf"\b(?:{'|'.join(ORDINAL_VALUES)})\b", re.IGNORECASE)
ROMAN_UNITS = ("", "I", "II", "III", "IV", "V", "VI", "VII", "VIII", "IX")
ROMAN = re.compile(r"\b(X{0,2})(IX|IV|V?I{0,3})\b")


def numbers_without_source(text: str, sources: Iterable[str]) -> set[str]:
    """Numbers of the text that no source holds, in digits, spelled out or written in another way."""
    return written_numbers(text).difference(*map(_source_numbers, sources))


@lru_cache(CACHED_SOURCES)
def _source_numbers(text: str) -> frozenset[str]:
    return frozenset(all_numbers(text) | other_readings(text))


def other_readings(text: str) -> set[str]:
    """Numbers that a faithful rewrite of the text may hold beside those that stand in it."""
    plain = normalise_numerals(text)
    numbers = {minutes for pattern, minutes in MINUTES.items() if pattern.search(plain)}
    numbers |= {share for pattern, shares in SHARES.items() if pattern.search(plain) for share in shares}
    numbers |= {canonical_number(str(count_value(match[1] or match[2]) + 12)) for match in AFTERNOON.finditer(plain)}
    numbers |= {canonical_number(match[1]) for match in YEAR.finditer(plain)}
    for match in SHORT_YEAR.finditer(plain):
        year = int(match[1] or spelled_value(match[2]))
        numbers |= {str(1900 + year), str(2000 + year)}
    numbers |= {_colloquial(match) for match in COLLOQUIAL.finditer(plain)}
    numbers |= {ORDINAL_VALUES[match.group().lower()] for match in ORDINAL.finditer(plain)}
    numbers |= {str(10 * len(match[1]) + ROMAN_UNITS.index(match[2])) for match in ROMAN.finditer(plain)}
    return numbers | {dozens(match[1]) for match in LOOSE_DOZEN.finditer(plain)}


def _colloquial(match: re.Match[str]) -> str:
    tenths = Decimal(10 * DIGITS[match[1]] + DIGITS[match[3]])
    return canonical_number(str(tenths * (UNITS | MYRIADS).get(match[2], 1) / 10))
