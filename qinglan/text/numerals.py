"""Reads numbers in a text as people write them: 30, ３０, 1,000, 三十, 叁佰, Ⅲ, 1.5万, 半斤, 一打, three hundred.

written_numbers("服用三百mg")        {"300"}                what a text claims: in digits, or spelled out and counted
all_numbers("一天三次，共1.5万元")          {"1", "3", "1.5", "15000"}   every number that a reader finds in it
"""

import re
import unicodedata
from decimal import Decimal

from qinglan.text import english_numerals
from qinglan.text.english_numerals import (
    HALF_A_DOZEN,
    LONGEST_RUN,
    ORDINALS,
    SMALL,
    english_numbers,
    plain_words,
)

NUMBER = re.compile(r"(?<![A-Za-z\d.])(?<![A-Za-z]-)\d+(?:\.\d+)?")
"""A number in digits; one that follows a letter (Q10, B12, omega-3) is part of a name."""

SEPARATOR = re.compile(r"(?<=\d),(?=\d{3}(?!\d))")
DIGITS = {char: value for value, char in enumerate("零一二三四五六七八九")} | {"〇": 0, "两": 2}
UNITS = {"十": 10, "百": 100, "千": 1000}
MYRIADS = {"万": 10_000, "亿": 100_000_000}
SPELLED = re.compile("[零〇一二两三四五六七八九十][零〇一二两三四五六七八九十百千万亿]*")
TOO_MANY_DIGITS = re.compile(rf"(\d{{{LONGEST_RUN}}})\d+")
TOO_MANY_CHARACTERS = re.compile(
    rf"([零〇一二两三四五六七八九十百千万亿]{{{LONGEST_RUN}}})[零〇一二两三四五六七八九十百千万亿]+"
)
SPELLED_DIGITS = "零〇一二三四五六七八九"
MEASURE_WORDS = "次粒片颗袋瓶盒包滴勺克毫微升斤公岁天日周个月年小分钟秒元块折%节课门题页期套本支罐板针剂杯碗倍人度"
LATIN_UNITS = "mg|mcg|ug|μg|kg|g|ml|l|iu|cm|mm|km|m|kcal|cal|kj|h|min|pcs"
COUNTED = re.compile(
    rf"[多几余来]?(?:[{MEASURE_WORDS}]|\s*(?:[毫微公千]克|[公市]斤|毫升|小时|分钟|个月|[{MEASURE_WORDS}](?!\w))"
    rf"|\s*(?:{LATIN_UNITS})(?![A-Za-z]))",
    re.IGNORECASE,
)
"""Unit or measure word after a spelled-out number. After a space only unambiguous units match, so that 方案三 天然
does not count days."""

STATED = re.compile(r"(?<![A-Za-z\d.])(?<![A-Za-z]-)(\d+(?:\.\d+)?|\.\d+)([十百千万亿]*)")
MULTIPLIED = re.compile(r"(\d+(?:\.\d+)?|\.\d+)([十百千万亿]+)")
BEFORE_UNIT = re.compile(rf"(?<=[A-Za-z])(\d+(?:\.\d+)?)\s?(?:{LATIN_UNITS})(?![A-Za-z])", re.IGNORECASE)
COUNTED_HALF = re.compile(f"半[{MEASURE_WORDS}]")
HALF = re.compile(r"半|\bhalf\b", re.IGNORECASE)
LOOSE_DOZEN = re.compile(r"(半|\d+|[一二两三四五六七八九十]+)打")
"""A number of dozens, also before other characters: 一打多少钱 means twelve. It matches 一打电话 too, by mistake,
which does no harm."""

DOZEN = re.compile(rf"{LOOSE_DOZEN.pattern}(?!\w)")
FORMAL_NUMERALS = dict(
    zip("壹贰貳叁參肆伍陆陸柒捌玖拾佰仟萬億兩", "一二二三三四五六六七八九十百千万亿两", strict=True)
) | {"廿": "二十", "卅": "三十", "俩": "两个", "仨": "三个"}
FORMAL = re.compile(f"(?<![收队退入大登着])[{''.join(FORMAL_NUMERALS)}]")
"""Numerals in formal writing, but not inside words such as 收拾, 队伍 and 大陆."""

KILO = re.compile(rf"(?<=[\d{SPELLED_DIGITS}两十百半几])千(克(?!拉)|米|卡(?!路)|焦|瓦|帕)")
KILO_UNITS = {"克": "公斤", "米": "公里", "卡": "大卡", "焦": "kJ", "瓦": "kW", "帕": "kPa"}
"""Units that replace 千 and the base unit after it, because 千 then belongs to the unit: 200千卡 is 200 kcal, and
3千克 is 3 kg."""

DECIMAL = re.compile(
    rf"([{SPELLED_DIGITS}两十百]+)点([{SPELLED_DIGITS}]+)"
    r"(?=\s*(?:[毫微公千]?[克米升斤]|[度倍元块万亿岁折级寸%]|(?:mg|g|kg|ml|l|cm|m)\b))"
    rf"|(?<=[百千]分之)([{SPELLED_DIGITS}十]+)点([{SPELLED_DIGITS}]+)",
    re.IGNORECASE,
)
"""A spelled-out decimal before a unit, such as 三点五毫克. Without a unit, 三点五 may be a time of day."""

LOOSE_UNIT_INSIDE = re.compile(
    rf"(?<![\d.])(?:(\d+)|([{SPELLED_DIGITS}两十百]+))([米块元度])(?:(\d{{1,2}})|([{SPELLED_DIGITS}]{{1,2}}))"
    rf"(?![\d{SPELLED_DIGITS}两十百千万亿])"
)
UNIT_INSIDE = re.compile(rf"{LOOSE_UNIT_INSIDE.pattern}(?=$|[\s,，。;；、?？!！)）的高长宽深左右吗呢吧以了])")
"""A number with digits after its unit: 1米75, 三块五, 38度5. These digits are tenths and hundredths of the unit,
which is certain only before the characters at the pattern's end."""

SCALES = english_numerals.SCALES | {"hundred": 100, "k": 1000, "m": 10**6, "bn": 10**9}
SCALED = re.compile(r"(\d+(?:\.\d+)?)\s?(hundred|thousand|grand|million|billion|(?<=\d)(?:k|K|M|bn))\b")
FULL_HOUR = re.compile(r"(?<=\d):00(?!\d)")
A_NUMBER = rf"\d+|[一二两三四五六七八九十百]+|{'|'.join(SMALL[1:])}"
AND_A_HALF = re.compile(rf"({A_NUMBER})(?:[{MEASURE_WORDS}]半|\sand\sa\shalf\b)", re.IGNORECASE)
YEAR = re.compile(r"(?<!\d)(?:1[89]|20)(\d\d)(?!\d)")
SHORT_YEAR = re.compile(r"(?<!\d)(\d\d)(?:年|'?s\b)|(?<!\d)'(\d\d)\b|([零〇一二三四五六七八九]{2})年")
FRACTION = re.compile(r"(?<![\d./])(?:(\d{1,4}) )?(\d{1,4})[/⁄](\d{1,4})(?![\d/])")
SPOKEN_POINT = re.compile(r"(?<!\d)(\d{1,4})点(\d)(?!\d)")
TEN_THOUSANDS = re.compile(r"(?<![\d.])(\d+(?:\.\d+)?)w(?![a-z])", re.IGNORECASE)
"""A number before w: 2w may mean 20,000 (of fans) or 2 watts (of a lamp)."""

CLOCK_DIGITS = re.compile(r"(?<!\d)(\d{1,2}):(\d\d)(?!\d)")
ORDINAL_VALUES = {word: str(value) for value, word in enumerate(ORDINALS, 1)}
ORDINAL = re.compile(rf"\b(?:{'|'.join(ORDINAL_VALUES)})\b", re.IGNORECASE)
ROMAN_UNITS = ("", "I", "II", "III", "IV", "V", "VI", "VII", "VIII", "IX")
ROMAN = re.compile(r"\b(X{0,2})(IX|IV|V?I{0,3})\b")

VAGUE_COUNTS = {"1", "2"}
"""Spelled-out counts that are ignored, since 一天 or 两种 is mostly not meant as an exact number."""


def written_numbers(text: str) -> set[str]:
    """Return the numbers that the text states: in digits, in English words, or in Chinese numerals before a counted
    thing. A spelled-out 1 or 2 is ignored.

    A number that follows a letter (Q10, B12) is part of a name, unless a unit follows it: x300mg. "Half a dozen" is
    ignored too, since it is rarely meant as a number.
    """
    plain = normalise_numerals(HALF_A_DOZEN.sub(" ", text))
    numbers = {multiplied(match[1], match[2]) for match in STATED.finditer(plain)}
    numbers |= {canonical_number(match[1]) for match in BEFORE_UNIT.finditer(plain)}
    for match in SPELLED.finditer(plain):
        is_part = plain.endswith(("分之", "第"), 0, match.start())
        if is_part or COUNTED.match(plain, match.end()):
            numbers |= {_claimed_value(plain, match)} - VAGUE_COUNTS
    return numbers | _halves_and_dozens(plain) | ({*english_numbers(plain)} - VAGUE_COUNTS)


def all_numbers(text: str) -> set[str]:
    """Return every number that a reader could find in this text, or that a faithful rewrite of it may hold, as plain
    digits: the 90s may be 1990, 3 1/2 is 3.5, and the third is 3."""
    plain = normalise_numerals(text)
    numbers = {canonical_number(match.group()) for match in re.finditer(r"\d+(?:\.\d+)?|\.\d+", plain)}
    numbers |= {multiplied(match[1], match[2]) for match in MULTIPLIED.finditer(plain)}
    for match in SPELLED.finditer(plain):
        word = match.group()
        if not is_span(word):
            numbers.add(str(spelled_value(word)))
        if set(word) <= set(DIGITS):
            numbers |= {str(DIGITS[char]) for char in word}
    numbers |= {*english_numbers(plain)} | _halves_and_dozens(plain)
    if HALF.search(plain):
        numbers.add("0.5")
    numbers |= {canonical_number(decimal_inside(match)) for match in LOOSE_UNIT_INSIDE.finditer(plain)}
    numbers |= {canonical_number(match[1]) for match in YEAR.finditer(plain)}
    for match in SHORT_YEAR.finditer(plain):
        year = int(match[1] or match[2] or spelled_value(match[3]))
        numbers |= {str(1900 + year), str(2000 + year)}
    for match in FRACTION.finditer(plain):
        if int(match[3]):
            share = round(Decimal(match[2]) / Decimal(match[3]), 4)
            numbers.add(canonical_number(str(int(match[1] or 0) + share)))
    numbers |= {f"{match[1]}.{match[2]}" for match in SPOKEN_POINT.finditer(plain)}
    numbers |= {canonical_number(str(Decimal(match[1]) * 10000)) for match in TEN_THOUSANDS.finditer(plain)}
    numbers |= {canonical_number(match[1] + match[2]) for match in CLOCK_DIGITS.finditer(plain)}
    numbers |= {ORDINAL_VALUES[match.group().lower()] for match in ORDINAL.finditer(plain)}
    numbers |= {str(10 * len(match[1]) + ROMAN_UNITS.index(match[2])) for match in ROMAN.finditer(plain)}
    return numbers | {dozens(match[1]) for match in LOOSE_DOZEN.finditer(plain)}


def is_span(word: str) -> bool:
    """True for two digits that mean a range: 两三 is two or three, and not 23."""
    return len(word) == 2 and set(word) <= set(DIGITS) and 0 < DIGITS[word[1]] - DIGITS[word[0]] <= 2


def _claimed_value(plain: str, match: re.Match[str]) -> str:
    """Return the value of a spelled-out count. Of two digits in a row (三四天, 小九一天) the last counts, except in a
    year."""
    word = match.group()
    is_two_digits = len(word) == 2 and set(word) <= set(DIGITS) and not plain.startswith("年", match.end())
    return str(spelled_value(word[-1] if is_two_digits else word))


def _halves_and_dozens(plain: str) -> set[str]:
    numbers = {"0.5"} if COUNTED_HALF.search(plain) else set()
    numbers |= {canonical_number(str(count_value(match[1]) + Decimal("0.5"))) for match in AND_A_HALF.finditer(plain)}
    return numbers | {dozens(match[1]) for match in DOZEN.finditer(plain)}


def dozens(count: str) -> str:
    """Return the value of a number of dozens; 半 means half a dozen."""
    return canonical_number(str(12 * (Decimal("0.5") if count == "半" else count_value(count))))


def count_value(word: str) -> Decimal:
    if word[0].isdecimal():
        return Decimal(word)
    return Decimal(SMALL.index(word.lower()) if word[0].isascii() else spelled_value(word))


def multiplied(number: str, units: str) -> str:
    """Return the value of a number with Chinese units after it: 1.5万, 3百万."""
    value = Decimal(number)
    for unit in units:
        value *= (UNITS | MYRIADS)[unit]
    return canonical_number(str(value))


def normalise_numerals(text: str) -> str:
    """Return the text in half-width characters, with each number in one form. A number of more than LONGEST_RUN
    numerals is cut to its beginning.

    Roman, formal and colloquial numerals, 1,000, 2 million, 三点五毫克, 1米75 and 200千卡 are changed.
    """
    # NFKC turns Ⅳ into the letters IV, so Roman numerals are replaced first.
    roman = "".join(str(int(unicodedata.numeric(char))) if "Ⅰ" <= char <= "ⅿ" else char for char in text)
    plain = FULL_HOUR.sub("点", SEPARATOR.sub("", unicodedata.normalize("NFKC", roman)))
    plain = TOO_MANY_DIGITS.sub(r"\1", plain)
    plain = SCALED.sub(lambda match: canonical_number(str(Decimal(match[1]) * SCALES[match[2].lower()])), plain)
    plain = TOO_MANY_CHARACTERS.sub(r"\1", FORMAL.sub(lambda match: FORMAL_NUMERALS[match.group()], plain))
    plain = DECIMAL.sub(lambda match: _decimal(match[1] or match[3], match[2] or match[4]), plain)
    plain = UNIT_INSIDE.sub(lambda match: f"{decimal_inside(match)}{match[3]}", plain)
    return plain_words(KILO.sub(lambda match: KILO_UNITS[match[1]], plain))


def decimal_inside(match: re.Match[str]) -> str:
    """Return the number in a match of UNIT_INSIDE: 1米75 is 1.75."""
    return _decimal(match[1] or match[2], match[4] or match[5])


def _decimal(whole: str, digits: str) -> str:
    return f"{count_value(whole)}.{''.join(str(DIGITS.get(digit, digit)) for digit in digits)}"


def canonical_number(number: str) -> str:
    """Write a number in one form: 030, 30.0 and 30 become 30."""
    plain = Decimal(number)
    return str(int(plain)) if plain == plain.to_integral_value() else str(plain.normalize())


def spelled_value(word: str) -> int:
    """Return the value of a spelled-out number. Digits without a unit are read one by one: 二〇二五 is 2025."""
    if not set(word) & set(UNITS | MYRIADS):
        return int("".join(str(DIGITS[char]) for char in word))
    total = section = digit = 0
    if word[-1] in DIGITS and word[-2] in "百千万亿":  # 两千三 is 2300, and 2003 is 两千零三
        word += {"百": "十", "千": "百", "万": "千", "亿": "千万"}[word[-2]]
    for char in word:
        if char in DIGITS:
            digit = DIGITS[char]
        elif char in UNITS:
            section, digit = section + (digit or 1) * UNITS[char], 0
        else:
            section, before = section + digit, total if char == "亿" else 0
            total, section, digit = total - before + (before + section) * MYRIADS[char], 0, 0
    return total + section + digit
