"""The numbers in a Chinese text, however they are written: 30, ３０, 1,000, 三十, 两百, 1.5万, 二〇二五.

numbers("每日30粒")            {"30"}                 as digits
counted("服用三十天")           {"30"}                 spelled out before what is counted
known("一天三次，共1.5万元")     {"1", "3", "1.5", "15000"}   every number that a reader finds in it
"""

import re
import unicodedata
from decimal import Decimal

NUMBER = re.compile(r"(?<![A-Za-z\d.])\d+(?:\.\d+)?")
"""A number in digits; one that follows a letter (Q10, B12) is part of a name."""

SEPARATOR = re.compile(r"(?<=\d),(?=\d{3}(?!\d))")
DIGITS = {char: value for value, char in enumerate("零一二三四五六七八九")} | {"〇": 0, "两": 2}
UNITS = {"十": 10, "百": 100, "千": 1000}
MYRIADS = {"万": 10_000, "亿": 100_000_000}
SPELLED = re.compile("[零〇一二两三四五六七八九十][零〇一二两三四五六七八九十百千万亿]*")
MEASURE_WORDS = "次粒片颗袋瓶盒包滴勺克毫升斤岁天日周个月年小分钟秒元块折%节课门题页期套本"
VAGUE_COUNTS = {"1", "2"}
"""Counts that are ignored, since 一天 or 两种 is mostly a manner of speaking."""


def digit_numbers(text: str) -> set[str]:
    """Numbers written in digits, full-width or half-width."""
    return set(NUMBER.findall(unicodedata.normalize("NFKC", text)))


def spelled_counts(text: str) -> set[str]:
    """Spelled-out numbers before a measure word, without 一 and 两."""
    plain = unicodedata.normalize("NFKC", text)
    matches = ((match.group(), plain[match.end() : match.end() + 1]) for match in SPELLED.finditer(plain))
    return {str(spelled_value(word)) for word, after in matches if after and after in MEASURE_WORDS} - VAGUE_COUNTS


def all_numbers(text: str) -> set[str]:
    """Every number that a reader could find in this text, as plain digits."""
    plain = normalise_digits(text)
    numbers = {canonical_number(match.group()) for match in re.finditer(r"\d+(?:\.\d+)?", plain)}
    for match in re.finditer(r"(\d+(?:\.\d+)?)([十百千万亿])", plain):
        numbers.add(canonical_number(str(Decimal(match[1]) * (UNITS | MYRIADS)[match[2]])))
    for match in SPELLED.finditer(plain):
        numbers |= {
            str(spelled_value(match.group())),
            *(str(DIGITS[char]) for char in match.group() if char in DIGITS),
        }
    return numbers


def normalise_digits(text: str) -> str:
    """The text in half-width characters, with no commas between thousands."""
    return SEPARATOR.sub("", unicodedata.normalize("NFKC", text))


def canonical_number(number: str) -> str:
    """A number in one form: 030, 30.0 and 30 are 30."""
    plain = Decimal(number)
    return str(int(plain)) if plain == plain.to_integral_value() else str(plain.normalize())


def spelled_value(word: str) -> int:
    """The value of a spelled-out number; digits without a unit are read one by one: 二〇二五 is 2025."""
    if not set(word) & set(UNITS | MYRIADS):
        return int("".join(str(DIGITS[char]) for char in word))
    total = section = digit = 0
    for char in word:
        if char in DIGITS:
            digit = DIGITS[char]
        elif char in UNITS:
            section, digit = section + (digit or 1) * UNITS[char], 0
        else:
            section, before = section + digit, total if char == "亿" else 0
            total, section, digit = total - before + (before + section) * MYRIADS[char], 0, 0
    return total + section + digit
