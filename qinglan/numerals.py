"""The numbers in a Chinese text, however they are written: 30, ３０, 1,000, 三十, 两百, 1.5万, 二〇二五.

numbers("每日30粒")            {"30"}                 as digits
counted("服用三十天")           {"30"}                 spelled out before what is counted
known("一天三次，共1.5万元")     {"1", "3", "1.5", "15000"}   every number that a reader finds in it
"""

import re
import unicodedata
from decimal import Decimal

NUMBER = re.compile(r"(?<![A-Za-z\d.])\d+(?:\.\d+)?")
"""Those glued to letters (Q10, B12) are names."""

SEPARATOR = re.compile(r"(?<=\d),(?=\d{3}(?!\d))")
DIGITS = {char: value for value, char in enumerate("零一二三四五六七八九")} | {"〇": 0, "两": 2}
UNITS = {"十": 10, "百": 100, "千": 1000}
MYRIADS = {"万": 10_000, "亿": 100_000_000}
SPELLED = re.compile("[零〇一二两三四五六七八九十][零〇一二两三四五六七八九十百千万亿]*")
MEASURE_WORDS = "次粒片颗袋瓶盒包滴勺克毫升斤岁天日周个月年小分钟秒元块折%节课门题页期套本"
VAGUE_COUNTS = {"1", "2"}
"""一天, 两种: more manner of speaking than number."""


def digit_numbers(text: str) -> set[str]:
    """Those in digits, of any width."""
    return set(NUMBER.findall(unicodedata.normalize("NFKC", text)))


def spelled_counts(text: str) -> set[str]:
    """Those that are spelled out and count something; 一 and 两 say little."""
    plain = unicodedata.normalize("NFKC", text)
    found = ((match.group(), plain[match.end() : match.end() + 1]) for match in SPELLED.finditer(plain))
    return {str(spelled_value(word)) for word, after in found if after and after in MEASURE_WORDS} - VAGUE_COUNTS


def all_numbers(text: str) -> set[str]:
    """Every number that somebody could mean by this text, as plain digits."""
    plain = normalise_digits(text)
    found = {canonical_number(match.group()) for match in re.finditer(r"\d+(?:\.\d+)?", plain)}
    for match in re.finditer(r"(\d+(?:\.\d+)?)([十百千万亿])", plain):
        found.add(canonical_number(str(Decimal(match[1]) * (UNITS | MYRIADS)[match[2]])))
    for match in SPELLED.finditer(plain):
        found |= {str(spelled_value(match.group())), *(str(DIGITS[one]) for one in match.group() if one in DIGITS)}
    return found


def normalise_digits(text: str) -> str:
    """With half-width signs, and thousands without their commas."""
    return SEPARATOR.sub("", unicodedata.normalize("NFKC", text))


def canonical_number(number: str) -> str:
    """One way to write it: 030, 30.0 and 30 are 30."""
    plain = Decimal(number)
    return str(int(plain)) if plain == plain.to_integral_value() else str(plain.normalize())


def spelled_value(word: str) -> int:
    """Of a spelled number; digits in a row without a unit are read as they stand: 二〇二五."""
    if not set(word) & set(UNITS | MYRIADS):
        return int("".join(str(DIGITS[one]) for one in word))
    total = section = digit = 0
    for one in word:
        if one in DIGITS:
            digit = DIGITS[one]
        elif one in UNITS:
            section, digit = section + (digit or 1) * UNITS[one], 0
        else:
            section, before = section + digit, total if one == "亿" else 0
            total, section, digit = total - before + (before + section) * MYRIADS[one], 0, 0
    return total + section + digit
