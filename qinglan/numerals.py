"""The numbers in a text, as people write them: 30, ３０, 1,000, 三十, 叁佰, Ⅲ, 1.5万, 半斤, 一打, three hundred.

written_numbers("服用三百mg")        {"300"}                what a text claims: in digits, or spelled out and counted
all_numbers("一天三次，共1.5万元")          {"1", "3", "1.5", "15000"}   every number that a reader finds in it
"""

import re
import unicodedata
from decimal import Decimal

NUMBER = re.compile(r"(?<![A-Za-z\d.])(?<![A-Za-z]-)\d+(?:\.\d+)?")
"""A number in digits; one that follows a letter (Q10, B12, omega-3) is part of a name."""

SEPARATOR = re.compile(r"(?<=\d),(?=\d{3}(?!\d))")
DIGITS = {char: value for value, char in enumerate("零一二三四五六七八九")} | {"〇": 0, "两": 2}
UNITS = {"十": 10, "百": 100, "千": 1000}
MYRIADS = {"万": 10_000, "亿": 100_000_000}
SPELLED = re.compile("[零〇一二两三四五六七八九十][零〇一二两三四五六七八九十百千万亿]*")
LONGEST_RUN = 60
"""Numerals in a row that are read, of digits, of characters and of English words alike: nobody means a longer number,
and to look for what may follow each of thousands takes seconds."""

TOO_MANY_DIGITS = re.compile(rf"(\d{{{LONGEST_RUN}}})\d+")
TOO_MANY_CHARACTERS = re.compile(
    rf"([零〇一二两三四五六七八九十百千万亿]{{{LONGEST_RUN}}})[零〇一二两三四五六七八九十百千万亿]+"
)
MEASURE_WORDS = "次粒片颗袋瓶盒包滴勺克毫微升斤公岁天日周个月年小分钟秒元块折%节课门题页期套本支罐板针剂杯碗倍人"
LATIN_UNITS = "mg|mcg|ug|μg|kg|g|ml|l|iu|cm|mm|km|m|kcal|cal|kj|h|min|pcs"
COUNTED = re.compile(
    rf"[多几余来]?(?:[{MEASURE_WORDS}]|\s*(?:[毫微公千]克|[公市]斤|毫升|小时|分钟|个月|[{MEASURE_WORDS}](?!\w))"
    rf"|\s*(?:{LATIN_UNITS})(?![A-Za-z]))",
    re.IGNORECASE,
)
"""The rest of a spelled-out count; over a space only what surely is a unit: 方案三 天然 counts no days."""

STATED = re.compile(r"(?<![A-Za-z\d.])(?<![A-Za-z]-)(\d+(?:\.\d+)?|\.\d+)([十百千万亿]*)")
MULTIPLIED = re.compile(r"(\d+(?:\.\d+)?|\.\d+)([十百千万亿]+)")
BEFORE_UNIT = re.compile(rf"(?<=[A-Za-z])(\d+(?:\.\d+)?)\s?(?:{LATIN_UNITS})(?![A-Za-z])", re.IGNORECASE)
HALF = re.compile(f"半[{MEASURE_WORDS}]")
DOZEN = re.compile(r"(半|\d+|[一二两三四五六七八九十]+)打(?!\w)")
FORMAL_NUMERALS = dict(
    zip("壹贰貳叁參肆伍陆陸柒捌玖拾佰仟萬億兩", "一二二三三四五六六七八九十百千万亿两", strict=True)
)
FORMAL = re.compile(f"(?<![收队退入大登着])[{''.join(FORMAL_NUMERALS)}]")
"""Without 收拾, 队伍, 大陆 and the like."""

SMALL = (
    "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve",
    "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen",
)  # fmt: skip
ENGLISH = {
    **{word: value for value, word in enumerate(SMALL)},
    "twenty": 20, "thirty": 30, "forty": 40, "fifty": 50, "sixty": 60, "seventy": 70, "eighty": 80, "ninety": 90,
    "dozen": 12, "hundred": 100, "thousand": 1000, "million": 1_000_000, "thrice": 3, "twice": 2,
}  # fmt: skip
ENGLISH_WORD = "|".join(ENGLISH)
ENGLISH_NUMBER = re.compile(rf"\b(?:{ENGLISH_WORD})(?:(?:[ -]|\sand\s)(?:{ENGLISH_WORD}))*\b")
SCALES = {"k": 1000, "m": 10**6, "bn": 10**9, "hundred": 100, "thousand": 1000, "million": 10**6, "billion": 10**9}
SCALED = re.compile(r"(\d+(?:\.\d+)?)\s?(hundred|thousand|million|billion|(?<=\d)(?:k|K|M|bn))\b")
FULL_HOUR = re.compile(r"(?<=\d):00(?!\d)")
A_NUMBER = rf"\d+|[一二两三四五六七八九十百]+|{'|'.join(SMALL[1:])}"
AND_A_HALF = re.compile(rf"({A_NUMBER})(?:[{MEASURE_WORDS}]半|\sand\sa\shalf\b)", re.IGNORECASE)
VAGUE_COUNTS = {"1", "2"}
"""Counts that are ignored, since 一天 or 两种 is mostly a manner of speaking."""


def written_numbers(text: str) -> set[str]:
    """Numbers that the text states: in digits, or spelled out before what is counted, without 一 and 两.

    A number that follows a letter (Q10, B12) is part of a name, unless a unit follows it: x300mg.
    """
    plain = normalise_numerals(text)
    numbers = {_multiplied(match[1], match[2]) for match in STATED.finditer(plain)}
    numbers |= {canonical_number(match[1]) for match in BEFORE_UNIT.finditer(plain)}
    spelled = (match for match in SPELLED.finditer(plain) if _is_counted(plain, match))
    numbers |= {_claimed_value(plain, match) for match in spelled} - VAGUE_COUNTS
    return numbers | _halves_and_dozens(plain) | (english_values(plain) - VAGUE_COUNTS)


def all_numbers(text: str) -> set[str]:
    """Every number that a reader could find in this text, as plain digits."""
    plain = normalise_numerals(text)
    numbers = {canonical_number(match.group()) for match in re.finditer(r"\d+(?:\.\d+)?|\.\d+", plain)}
    numbers |= {_multiplied(match[1], match[2]) for match in MULTIPLIED.finditer(plain)}
    for match in SPELLED.finditer(plain):
        numbers |= {
            str(spelled_value(match.group())),
            *(str(DIGITS[char]) for char in match.group() if char in DIGITS),
        }
    return numbers | ({"0.5"} if "半" in plain else set()) | _halves_and_dozens(plain) | english_values(plain)


def _claimed_value(plain: str, match: re.Match[str]) -> str:
    """The value of a spelled-out count; of two digits in a row (三四天, 小九一天) the last, except in a year."""
    word = match.group()
    is_two_digits = len(word) == 2 and set(word) <= set(DIGITS) and not plain.startswith("年", match.end())
    return str(spelled_value(word[-1] if is_two_digits else word))


def _is_counted(plain: str, match: re.Match[str]) -> bool:
    return bool(COUNTED.match(plain, match.end())) or plain.endswith("百分之", 0, match.start())


def _halves_and_dozens(plain: str) -> set[str]:
    numbers = {"0.5"} if HALF.search(plain) else set()
    numbers |= {canonical_number(str(count_value(match[1]) + Decimal("0.5"))) for match in AND_A_HALF.finditer(plain)}
    return numbers | {dozens(match[1]) for match in DOZEN.finditer(plain)}


def dozens(count: str) -> str:
    """The value of a number of dozens, where 半 is half a dozen."""
    return canonical_number(str(12 * (Decimal("0.5") if count == "半" else count_value(count))))


def count_value(word: str) -> Decimal:
    """The value of a number in digits, in Chinese characters or in one English word."""
    if word[0].isdecimal():
        return Decimal(word)
    return Decimal(ENGLISH[word.lower()] if word[0].isascii() else spelled_value(word))


def _multiplied(number: str, units: str) -> str:
    """The value of 1.5万, 3百万."""
    value = Decimal(number)
    for unit in units:
        value *= (UNITS | MYRIADS)[unit]
    return canonical_number(str(value))


def english_values(text: str) -> set[str]:
    """Numbers in English words: three, twenty-five, three hundred, a dozen."""
    numbers = set()
    for match in ENGLISH_NUMBER.finditer(text.lower()):
        total = part = 0
        for word in re.findall("[a-z]+", match.group())[:LONGEST_RUN]:
            value = ENGLISH.get(word, 0)
            if value >= 1000:
                total, part = total + (part or 1) * value, 0
            elif value in (12, 100) and word in ("dozen", "hundred"):
                part = (part or 1) * value
            else:
                part += value
        numbers.add(str(total + part))
    return numbers


def normalise_numerals(text: str) -> str:
    """The text in half-width characters, with Roman and formal numerals, 1,000 and 2 million in one form, and the
    beginning alone of a number that nobody means."""
    roman = "".join(str(int(unicodedata.numeric(char))) if "Ⅰ" <= char <= "ⅿ" else char for char in text)
    plain = FULL_HOUR.sub("", SEPARATOR.sub("", unicodedata.normalize("NFKC", roman)))
    plain = TOO_MANY_DIGITS.sub(r"\1", plain)
    plain = SCALED.sub(lambda match: canonical_number(str(Decimal(match[1]) * SCALES[match[2].lower()])), plain)
    return TOO_MANY_CHARACTERS.sub(r"\1", FORMAL.sub(lambda match: FORMAL_NUMERALS[match.group()], plain))


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
