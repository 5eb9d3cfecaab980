"""Other ways to write the numbers of a text: 半年 may be 6个月, the 1990s the 90s, and a third 1/3.

numbers_without_source("一次吃8片", ["一次吃两片"])        {"8"}
numbers_without_source("at 15:00", ["at 3 pm"])           set()
"""

import re
from collections.abc import Iterable
from decimal import Decimal
from functools import lru_cache

from qinglan.text.english_numerals import ORDINALS
from qinglan.text.numerals import (
    DOZEN,
    LOOSE_UNIT_INSIDE,
    all_numbers,
    canonical_number,
    decimal_inside,
    dozens,
    normalise_numerals,
    spelled_value,
    written_numbers,
)
from qinglan.text.quantities import HALF, quantities

CACHED_SOURCES = 1 << 10
YEAR = re.compile(r"(?<!\d)(?:1[89]|20)(\d\d)(?!\d)")
SHORT_YEAR = re.compile(r"(?<!\d)(\d\d)(?:年|'?s\b)|(?<!\d)'(\d\d)\b|([零〇一二三四五六七八九]{2})年")
FRACTION = re.compile(r"(?<![\d./])(?:(\d{1,4}) )?(\d{1,4})[/⁄](\d{1,4})(?![\d/])")
SPOKEN_POINT = re.compile(r"(?<!\d)(\d{1,4})点(\d)(?!\d)")
TEN_THOUSANDS = re.compile(r"(?<![\d.])(\d+(?:\.\d+)?)w(?![a-z])", re.IGNORECASE)
"""2w is 20,000 among fans and 2 watts among lamps."""

CLOCK_DIGITS = re.compile(r"(?<!\d)(\d{1,2}):(\d\d)(?!\d)")
LOOSE_DOZEN = re.compile(DOZEN.pattern.removesuffix(r"(?!\w)"))
"""一打多少钱 speaks of twelve; that 一打电话 does not can stay unknown."""

ORDINAL_VALUES = {word: str(value) for value, word in enumerate(ORDINALS, 1)}
ORDINAL = re.compile(rf"\b(?:{'|'.join(ORDINAL_VALUES)})\b", re.IGNORECASE)
ROMAN_UNITS = ("", "I", "II", "III", "IV", "V", "VI", "VII", "VIII", "IX")
ROMAN = re.compile(r"\b(X{0,2})(IX|IV|V?I{0,3})\b")


def numbers_without_source(text: str, sources: Iterable[str]) -> set[str]:
    """Numbers of the text that no source holds, in digits, spelled out, with another unit or written otherwise."""
    sources = tuple(sources)
    unknown = written_numbers(text).difference(*map(_source_numbers, sources))
    if unknown:
        amounts = frozenset[tuple[str, float]]().union(*map(_source_amounts, sources))
        for quantity in quantities(text):
            if quantity[1:] in amounts:
                unknown.difference_update(quantity.numbers)
    return unknown


@lru_cache(CACHED_SOURCES)
def _source_numbers(text: str) -> frozenset[str]:
    return frozenset(all_numbers(text) | other_readings(text))


@lru_cache(CACHED_SOURCES)
def _source_amounts(text: str) -> frozenset[tuple[str, float]]:
    return frozenset((quantity.dimension, quantity.value) for quantity in quantities(text))


def other_readings(text: str) -> set[str]:
    """Numbers that a faithful rewrite of the text may hold beside those that stand in it."""
    plain = normalise_numerals(text)
    numbers = {"0.5"} if HALF.search(plain) else set()
    numbers |= {canonical_number(decimal_inside(match)) for match in LOOSE_UNIT_INSIDE.finditer(plain)}
    numbers |= {canonical_number(match[1]) for match in YEAR.finditer(plain)}
    for match in SHORT_YEAR.finditer(plain):
        year = int(match[1] or match[2] or spelled_value(match[3]))
        numbers |= {str(1900 + year), str(2000 + year)}
    numbers |= {_mixed(match) for match in FRACTION.finditer(plain) if int(match[3])}
    numbers |= {f"{match[1]}.{match[2]}" for match in SPOKEN_POINT.finditer(plain)}
    numbers |= {canonical_number(str(Decimal(match[1]) * 10000)) for match in TEN_THOUSANDS.finditer(plain)}
    numbers |= {canonical_number(match[1] + match[2]) for match in CLOCK_DIGITS.finditer(plain)}
    numbers |= {ORDINAL_VALUES[match.group().lower()] for match in ORDINAL.finditer(plain)}
    numbers |= {str(10 * len(match[1]) + ROMAN_UNITS.index(match[2])) for match in ROMAN.finditer(plain)}
    return numbers | {dozens(match[1]) for match in LOOSE_DOZEN.finditer(plain)}


def _mixed(match: re.Match[str]) -> str:
    """3 1/2 as 3.5."""
    return canonical_number(str(int(match[1] or 0) + round(Decimal(match[2]) / Decimal(match[3]), 4)))
