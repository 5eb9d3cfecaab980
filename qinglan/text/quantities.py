"""Reads amounts with their units, so that 半年 equals 6个月, 0.5 g equals 500 mg, and "half of them" equals 50 %.

numbers_without_source("一次吃8片", ["一次吃两片"])        {"8"}
numbers_without_source("at 15:00", ["at 3 pm"])           set()
quantities("一个半小时")      [Quantity(("1.5",), "time", 5400.0)]
quantities("at 7:30 pm")      [Quantity(("7", "30"), "clock", 450.0), Quantity(("7", "30"), "clock", 1170.0)]

A converted number counts only with its unit: a week is 7 days, and not 7 tablets.
"""

import re
from collections.abc import Iterable, Iterator
from decimal import Decimal
from functools import lru_cache
from typing import NamedTuple

from qinglan.text.english_numerals import ORDINALS, in_digits
from qinglan.text.numerals import (
    DIGITS,
    HALF,
    MEASURE_WORDS,
    MULTIPLIED,
    SPELLED,
    TOO_MANY_DIGITS,
    all_numbers,
    canonical_number,
    is_span,
    multiplied,
    normalise_numerals,
    spelled_value,
    written_numbers,
)


class Quantity(NamedTuple):
    numbers: tuple[str, ...]
    """Numbers in the text that state the quantity, in the form of `written_numbers`."""

    dimension: str
    value: float
    """Value in the unit that has size 1 in its dimension (UNITS_BY_DIMENSION), rounded to six significant digits."""


UNITS_BY_DIMENSION: dict[str, dict[float, str]] = {
    "mass": {  # milligrams
        0.001: "μg|ug|mcg|微克|micrograms?", 1: "mg|毫克|milligrams?", 1e3: "g|克|grams?",
        5e5: "斤|市斤", 1e6: "kg|公斤|kilos?|kilograms?", 1e9: "吨|tons?|tonnes?", 453592.37: "lbs?|pounds?",
        28349.523: "oz|ounces?",
    },
    "length": {  # millimetres
        1: "mm|毫米", 10: "cm|厘米|公分", 25.4: "英寸|寸|inch(?:es)?", 304.8: "feet|foot|ft|英尺", 914.4: "yards?",
        1e3: "m|米|met(?:er|re)s?", 5e5: "里", 1e6: "km|公里|kilomet(?:er|re)s?", 1609344: "miles?|英里",
    },
    "volume": {1: "ml|毫升|cc|millilit(?:er|re)s?", 1e3: "l|升|lit(?:er|re)s?"},
    "energy": {1: "cal(?![a-z])", 1e3: "kcal|大卡|calories"},
    "time": {  # seconds
        1: "秒钟?|seconds?|secs?", 60: "分钟|minutes?|mins?", 900: "刻钟", 3600: "小时|钟头|hours?|hrs?|h",
        86400: "天|days?", 604800: "周|星期|礼拜|weeks?", 1209600: "fortnights?",
    },
    "months": {
        1: "个月|(?<=半)月|months?", 3: "季度", 12: "年|years?", 120: "decades?", 1200: "century|centuries",
    },
    "money": {0.1: "毛|角", 1: "元|块", },
    "dollars": {0.01: "cents?", 1: "dollars?|bucks?"},
    "share": {0.001: "‰", 0.01: "%|per\\s?cent", 0.1: "成(?![立为员分果功就])|折", 0.25: "quarters?"},
}  # fmt: skip
"""Patterns of units, by dimension and by size in the dimension's unit of size 1."""

CACHED_SOURCES = 1 << 10
DAYS_OF_A_MONTH = 30
NUMBER = r"\d+(?:\.\d+)?"
UNIT = {
    f"{dimension}_{at}": (dimension, size)
    for dimension, units in UNITS_BY_DIMENSION.items()
    for at, size in enumerate(units)
}
UNIT_PATTERN = "|".join(
    f"(?P<{dimension}_{at}>{pattern})"
    for dimension, units in UNITS_BY_DIMENSION.items()
    for at, pattern in enumerate(units.values())
)
AMOUNT = re.compile(
    rf"(?<![\d.])({NUMBER})[ -]?个?(?P<half>半)?(?:{UNIT_PATTERN})(?:半|\sand\sa\shalf)?(?![a-z])", re.IGNORECASE
)
DOLLARS = re.compile(rf"\$\s?({NUMBER})")
FRACTION = re.compile(r"(?<![\d.])(\d+)分之(\d+(?:\.\d+)?)|(?<![\d./])(\d+)[/⁄](\d+)(?![\d/])")
PER_HUNDRED = {"百": 100, "千": 1000, "万": 10000}
SHARE_OF = re.compile(rf"([百千万])分之({NUMBER})")
ONE_IN = re.compile(r"\b1\sin\s(\d+)\b")
PARTS = {word: number for number, word in enumerate(ORDINALS, 1)} | {"quarter": 4}
WORD_SHARE = re.compile(rf"\b(?:(\d+)[ -])?({'|'.join(ORDINALS[2:])}|quarter)s?\sof\b", re.IGNORECASE)
DAYTIME = re.compile(
    r"(?P<day>上午|早上|凌晨|中午|下午|傍晚|晚上?)?(?<![\d.:])(?P<hour>\d{1,2})(?:[点时](?:(?P<half>半)|(?P<quarters>[13])刻"
    r"|(?P<m1>\d{1,2})分?)?|:(?P<m2>\d\d)| ?o'clock|(?= ?[ap]\.?m))(?: ?(?P<noon>[ap])\.?m\b)?",
    re.IGNORECASE,
)
SPOKEN_TIME = re.compile(r"\b(half|quarter|(\d+)(?: minutes?)?) (past|to) (\d{1,2})\b")
NOON = re.compile(r"\b(noon|midday)\b|(?<!下)(中午)(?!\d)")
LIANG = re.compile(rf"([一二三四五六七八九半])两(?![百千万一二三四五六七八九十{MEASURE_WORDS}])")
HALF_OF_UNIT = re.compile(
    r"(?<![\d个])(?<!\d[年周天斤里])半(?=个?(?:[年月天斤两]|小时|公斤))|\bhalf\san?\s(?=[a-z])", re.IGNORECASE
)
UNIT_AND_A_HALF = re.compile(r"\b(?:an?|1)\s([a-z]+)\sand\sa\shalf\b", re.IGNORECASE)
AND_A_HALF = re.compile(r"(\d+)\sand\sa\shalf\s(?=[a-z])", re.IGNORECASE)
A_UNIT = re.compile(r"\b(?:an?|every|per|each)\s(?=[a-z])", re.IGNORECASE)
QUARTERS_OF_AN_HOUR = re.compile(r"\b(\d+)\squarters?\sof\s1\shour\b", re.IGNORECASE)


def numbers_without_source(text: str, sources: Iterable[str]) -> set[str]:
    """Return the numbers of the text that no source holds in any form: in digits, in words, or converted to another
    unit."""
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
    return frozenset(all_numbers(text))


@lru_cache(CACHED_SOURCES)
def _source_amounts(text: str) -> frozenset[tuple[str, float]]:
    return frozenset((quantity.dimension, quantity.value) for quantity in quantities(text))


def quantities(text: str) -> Iterator[Quantity]:
    """Yield every amount in the text. An ambiguous amount is yielded once for each meaning."""
    plain = normalise_numerals(text)
    if HALF.search(plain):
        yield _quantity(("0.5",), "share", 0.5)
    plain = _in_digits(plain)
    yield from _amounts(plain)
    yield from _shares(plain)
    yield from _times(plain)


def _in_digits(plain: str) -> str:
    """Return the text with its numbers in digits, `an hour` as `1 hour`, and half a unit as 0.5 of the unit."""
    plain = LIANG.sub(lambda match: f"{50 * (0.5 if match[1] == '半' else DIGITS[match[1]]):g}克", plain)
    plain = MULTIPLIED.sub(lambda match: f"{multiplied(match[1], match[2])} ", plain)
    plain = TOO_MANY_DIGITS.sub(r"\1", SPELLED.sub(_spelled, in_digits(plain)))
    plain = AND_A_HALF.sub(r"\1.5 ", UNIT_AND_A_HALF.sub(r"1.5 \1", plain))
    plain = A_UNIT.sub("1 ", HALF_OF_UNIT.sub("0.5", plain))
    return QUARTERS_OF_AN_HOUR.sub(lambda match: str(15 * int(match[1])) + "min", plain)


def _spelled(match: re.Match[str]) -> str:
    """Return a spelled-out number in digits, with a space before or after it if a digit is next to it there."""
    word, before, after = (
        match[0],
        match.string[max(0, match.start() - 1) : match.start()],
        match.string[match.end() : match.end() + 1],
    )
    value = DIGITS[word[-1]] if is_span(word) else spelled_value(word)
    return f"{' ' if before.isdigit() else ''}{value}{' ' if after.isdigit() else ''}"


def _amounts(plain: str) -> Iterator[Quantity]:
    for match in AMOUNT.finditer(plain):
        dimension, size = UNIT[str(match.lastgroup)]
        has_half = match["half"] or match[0].endswith(("半", "half"))
        count = Decimal(match[1]) + (Decimal("0.5") if has_half else 0)
        number = canonical_number(str(count))
        numbers = (number, "0.5") if match["half"] else (number,)
        if dimension == "share" and "折" in match[0] and count >= 10:
            size = 0.01
        yield _quantity(numbers, dimension, float(count) * size)
        if dimension == "months":
            # 30 days a month: 三个月 and 90天 are the same amount, and so are 半年 and 180天.
            yield _quantity(numbers, "time", float(count) * size * DAYS_OF_A_MONTH * 86400)
    for match in DOLLARS.finditer(plain):
        yield _quantity((canonical_number(match[1]),), "dollars", float(match[1]))


def _shares(plain: str) -> Iterator[Quantity]:
    for match in FRACTION.finditer(plain):
        below, above = (match[1], match[2]) if match[1] else (match[4], match[3])
        if float(below):
            numbers = (canonical_number(below), canonical_number(above))
            yield _quantity(numbers, "share", float(above) / float(below))
    for match in SHARE_OF.finditer(plain):
        yield _quantity((canonical_number(match[2]),), "share", float(match[2]) / PER_HUNDRED[match[1]])
    for match in ONE_IN.finditer(plain):
        if int(match[1]):
            yield _quantity((canonical_number(match[1]),), "share", 1 / int(match[1]))
    for match in WORD_SHARE.finditer(plain):
        yield _quantity((match[1] or "1",), "share", int(match[1] or 1) / PARTS[match[2].lower()])


def _times(plain: str) -> Iterator[Quantity]:
    for match in DAYTIME.finditer(plain):
        hour = int(match["hour"])
        minute = 30 if match["half"] else 15 * int(match["quarters"] or 0) or int(match["m1"] or match["m2"] or 0)
        numbers = tuple(canonical_number(part) for part in (match["hour"], match["m1"] or match["m2"]) if part)
        yield from _clock(numbers, hour, minute, (match["day"] or match["noon"] or "").lower())
    for match in SPOKEN_TIME.finditer(plain):
        minutes = {"half": 30, "quarter": 15}.get(match[1]) or int(match[2] or 0)
        total = 60 * int(match[4]) + (minutes if match[3] == "past" else -minutes)
        yield from _clock((match[4],), total // 60, total % 60)
    if NOON.search(plain):
        yield _quantity((), "clock", 720)


def _clock(numbers: tuple[str, ...], hour: int, minute: int, day: str = "") -> Iterator[Quantity]:
    """Yield a time of day; without a word such as 下午 or pm, yield it for both halves of the day."""
    is_late = day in ("下午", "傍晚", "晚", "晚上", "p")
    # Without a word for the half of the day, 7:30 may be 07:30 or 19:30.
    hours = {hour % 12 + 12 * is_late} if day and hour <= 12 else {hour, hour + 12} if hour <= 12 else {hour}
    for each in hours:
        yield _quantity(numbers, "clock", 60 * (each % 24) + minute)


def _quantity(numbers: tuple[str, ...], dimension: str, value: float) -> Quantity:
    return Quantity(numbers, dimension, float(f"{value:.6g}"))
