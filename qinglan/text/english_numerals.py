"""Reads numbers in English words: three hundred and five, nineteen ninety-eight, two point five, the nineties.

english_numbers("two or three hundred tablets since nineteen ninety-eight")   ["2", "300", "1998"]
"""

import re
from collections.abc import Iterator, Sequence

LONGEST_RUN = 60
"""Largest number of numerals in a row (digits, characters or English words) that are read as one number. Nobody
writes a longer number, and matching thousands of numerals takes seconds."""

SMALL = (
    "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve",
    "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen",
)  # fmt: skip
TENS = {
    "twenty": 20, "thirty": 30, "forty": 40, "fifty": 50, "sixty": 60, "seventy": 70, "eighty": 80, "ninety": 90,
}  # fmt: skip
ORDINALS = (
    "first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth", "eleventh",
    "twelfth",
)  # fmt: skip
SCALES = {"thousand": 1000, "grand": 1000, "million": 10**6, "billion": 10**9}
SINGLE = {"twice": 2, "thrice": 3}
VALUES = {word: value for value, word in enumerate(SMALL)} | TENS
WORD = "|".join((*VALUES, *SCALES, *SINGLE, "hundred", "dozen"))
RUN = re.compile(rf"\b(?:{WORD})(?:(?:[ -]+(?:and|oh|point)[ -]+|[ -]+)(?:{WORD}))*\b", re.IGNORECASE)
COMPOUND_ORDINAL = re.compile(rf"\b({'|'.join(TENS)})[ -]({'|'.join(ORDINALS[:9])})\b", re.IGNORECASE)
DECADE = re.compile(r"\b(twent|thirt|fort|fift|sixt|sevent|eight|ninet)ies\b", re.IGNORECASE)
DECADES = {f"{word[:-1]}": value for word, value in TENS.items()}
HALF_A_DOZEN = re.compile(r"\bhalf\s(?:of\s)?a\sdozen\b", re.IGNORECASE)

COUPLE = re.compile(r"\ba\scouple\s(?:of\s)?", re.IGNORECASE)


def plain_words(text: str) -> str:
    """Simplify number words: twenty-first becomes twenty-one, the nineties the 90s, half a dozen six."""
    text = COMPOUND_ORDINAL.sub(lambda match: f"{match[1]}-{SMALL[1 + ORDINALS.index(match[2].lower())]}", text)
    text = DECADE.sub(lambda match: f"{DECADES[match[1].lower()]}s", text)
    return COUPLE.sub("two ", HALF_A_DOZEN.sub("six", text))


def english_numbers(text: str) -> list[str]:
    return [number for match in RUN.finditer(text) for number in _run_numbers(_words(match[0]))]


def in_digits(text: str) -> str:
    return RUN.sub(lambda match: " and ".join(_run_numbers(_words(match[0]))), text)


def _words(run: str) -> list[str]:
    return re.findall("[a-z]+", run.lower())[:LONGEST_RUN]


def _run_numbers(words: Sequence[str]) -> Iterator[str]:
    """Yield the numbers in a run of number words: "two three" holds two numbers, "twenty three" one."""
    total = part = 0
    begun, at = False, 0
    while at < len(words):
        word, at = words[at], at + 1
        if word == "point" and (digits := _digits(words[at:])):
            yield f"{total + part}.{digits}"
            total, part, begun, at = 0, 0, False, at + len(digits)
        elif word == "oh":  # nineteen oh five
            part *= 100
        elif word == "and" and words[at - 2] in ("hundred", *SCALES):
            continue
        elif (joined := _joined(word, total, part, begun)) is not None:
            total, part = joined
            begun = True
        else:
            if begun:
                yield str(total + part)
            first = _joined(word, 0, 0, False)
            begun = first is not None
            total, part = first or (0, 0)
    if begun:
        yield str(total + part)


def _joined(word: str, total: int, part: int, begun: bool) -> tuple[int, int] | None:
    """Add a word to a number, which is given as whole thousands (`total`) and the rest (`part`); None if the word
    cannot continue the number."""
    if word in SINGLE:
        return None if begun else (0, SINGLE[word])
    if word in SCALES:
        return total + (part or 1) * SCALES[word], 0
    if word in ("hundred", "dozen"):
        return (total, (part or 1) * (100 if word == "hundred" else 12)) if part < 100 else None
    if (value := VALUES.get(word)) is None:
        return None
    if not part:
        return None if begun and not total else (total, value)
    if (value < 10 and part % 10 == 0 and part % 100 != 10) or part % 100 == 0:
        return total, part + value
    if value >= 10 and 10 <= part <= 20 and not total and (part > 12 or value >= 60):  # 1998, and not 10:15
        return 0, part * 100 + value
    return None


def _digits(words: Sequence[str]) -> str:
    digits = ""
    for word in words:
        if word not in SMALL[:10]:
            break
        digits += str(SMALL.index(word))
    return digits
