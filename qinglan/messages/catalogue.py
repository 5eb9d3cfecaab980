"""Templates of English texts with their translations, and the match of a text to its template.

msgid "{0}: {1:n} rows, {2}"
msgstr "{0}：{1} 行，{2:t}"

A text matches a template if it has the template's words in their order; each {N} holds what stands between them, and
{N:n} a number. The parts are put into the translation as they are, so nothing of a text is lost. A part that the
translation marks {N:t} is a text of ours, and is translated too; all other parts may be a user's words, and are not.
No text is divided inside of quotes, backquotes or braces: an example of JSON is one word.
"""

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from threading import Lock
from typing import NamedTuple, Self

from qinglan.messages.po import read_po

LETTERS = re.compile("[A-Za-z]{2}|[0-9] [a-z]$")
"""A word, or a unit behind a number: a text that has neither needs no translation."""

SLOT = re.compile(r"\{(\d+)(:[nt])?\}")
NUMBER = re.compile(r"\s*[-+]?(\d[\d,.]*(e[-+]?\d+)?%?|nan|inf)\s*")

MARK = re.compile(r"\s*(?:[-!✓✗·◇▶] |\[[^\]\s][^\]]*\] )?\s*")
"""The bullet, or the stage in brackets, before a sentence on a line; it is no part of a template."""

JOINTS = {",": "，", ";": "；", ":": "："}
"""Marks before a part that was joined to a text."""

ENDS = {".": "。", ";": "；", ":": "："}
"""Marks behind a text that its template may lack, as they were put there when it was joined to others."""

SENTENCES = re.compile(r"(?<=[.;!?]) ")
SENTENCE_END = re.compile(r"[.!?] [A-Za-z0-9`]|; ")
MOST_SENTENCES = 30
SUBJECT_MARK = re.compile(": ")
LIST_MARK = re.compile(", ")
MOST_SUBJECTS, MOST_NESTED = 4, 8
ARTIFACT = re.compile("[\\w./]+( [\\w./]+){0,3} [0-9a-f]{12}")
"""An artifact's name, which may have blanks, with its digest, such as `prompt teacher 874df5cf2f8a`."""

MOST_ITEMS, LONGEST_ITEM = 40, 4
EDGE = 4
"""Letters at the beginning or the end of a text that tell its templates apart."""

FEW_LETTERS = 8
"""With fewer letters a template would match texts that mean something else."""

QUOTE = re.compile(r"""`[^`]*`|"[^"]*"|(?<![^\s([{,:=])'[^']*'(?!\w)|[{}]""")
FILLER = "·"

CHINESE, LATIN = re.compile("[\u4e00-\u9fff]"), re.compile("[A-Za-z0-9%]")
NAME = re.compile("[a-z_]+:")
"""A single word before a colon: it may name a setting or a column."""

FULL_WIDTH = "\u3000"
"""The first of the full-width signs; behind them stands no blank."""


class Quotes(NamedTuple):
    """Which characters of a text stand in quotes, backquotes or braces."""

    numbers: tuple[int, ...]
    """For each gap between two characters the number of the quote that it lies in; 0 outside of all."""

    masked: str
    """The text with a filler for each quoted character, which is no mark of a sentence."""

    @classmethod
    @lru_cache(maxsize=32)
    def of(cls, text: str) -> Self:
        numbers, masked, end = [0] * (len(text) + 1), [], 0
        for number, (begin, behind) in enumerate(_outer_quotes(text), 1):
            numbers[begin + 1 : behind] = [number] * (behind - begin - 1)
            masked += [text[end : begin + 1], FILLER * (behind - begin - 2), text[behind - 1]]
            end = behind
        return cls(tuple(numbers), "".join([*masked, text[end:]]))

    def are_whole(self, start: int, end: int) -> bool:
        """True if the text from start to end holds no quote that begins or ends outside of it."""
        return self.numbers[start] == self.numbers[end]


def _outer_quotes(text: str) -> Iterator[tuple[int, int]]:
    """Begin and end of each quote that lies in no other; a sign that nothing closes begins none."""
    pairs, opened = [], []
    for sign in QUOTE.finditer(text):
        if sign[0] == "{":
            opened.append(sign.start())
        elif sign[0] != "}":
            pairs.append(sign.span())
        elif opened:
            pairs.append((opened.pop(), sign.end()))
    behind = 0
    for begin, end in sorted(pairs):
        if begin >= behind:
            yield begin, end
            behind = end


def divided(text: str, mark: re.Pattern[str], most: int = 0) -> list[str]:
    """The pieces between the marks that stand outside of quotes; with `most`, only the first marks count."""
    quotes = Quotes.of(text)
    pieces, start = list[str](), 0
    for at in mark.finditer(text):
        if not quotes.numbers[at.start()] and (not most or len(pieces) < most):
            pieces.append(text[start : at.start()])
            start = at.end()
    return [*pieces, text[start:]]


class Template(NamedTuple):
    """An English text with numbered slots, and its translation."""

    literals: tuple[str, ...]
    """The words before, between and behind the slots."""

    kinds: tuple[str, ...]
    """The kind of each slot: a number (n), a text of ours (t), or anything."""

    short: bool
    """It has few words, so that what it quotes must be a word too."""

    translation: str

    @classmethod
    def parse(cls, text: str, translation: str) -> Self:
        slots = list(SLOT.finditer(text))
        ends = [0, *(slot.end() for slot in slots)], [*(slot.start() for slot in slots), len(text)]
        literals = tuple(text[start:end] for start, end in zip(*ends, strict=True))
        short = sum(map(str.isalpha, "".join(literals))) < FEW_LETTERS
        kinds = ("t" if f"{{{slot[1]}:t}}" in translation else (slot[2] or "")[1:] for slot in slots)
        return cls(literals, tuple(kinds), short, translation)

    def match(self, text: str) -> list[str] | None:
        """The parts of the text that stand in the slots; each slot ends at the first place where its next word is.

        Time grows with the text's length alone, whatever a hostile text repeats.
        """
        first, *middle, last = self.literals
        start, end = len(first), len(text) - len(last)
        if end < start or not text.startswith(first) or not text.endswith(last):
            return None
        quotes = Quotes.of(text)
        parts = []
        for literal, kind in zip(middle, self.kinds[1:], strict=True):
            at = text.find(literal, start, end)
            while at >= 0 and not (
                quotes.are_whole(start, at) and (kind != "n" or NUMBER.match(text, at + len(literal)))
            ):
                at = text.find(literal, at + 1, end)
            if at < 0:
                return None
            parts.append((start, at))
            start = at + len(literal)
        parts.append((start, end))
        if not quotes.are_whole(start, end) or not self._fits([quotes.masked[slice(*part)] for part in parts]):
            return None
        return [text[slice(*part)] for part in parts]

    def swallows(self, part: str) -> bool:
        """True if the last part has the beginning of a sentence that may have a template of its own."""
        is_open = self.literals[-1] in ("", ".") and self.kinds[-1] != "t"
        return is_open and SENTENCE_END.search(Quotes.of(part).masked) is not None

    def _fits(self, parts: list[str]) -> bool:
        """True if numbers are numbers, and if no part, its quotes masked, is a piece of the sentence itself."""
        for kind, before, part in zip(self.kinds, self.literals, parts, strict=False):
            if kind == "n" and not NUMBER.fullmatch(part):
                return False
            if not kind and (part != part.strip() or (self.short and _is_long(before, part))):
                return False
            if before.count("(") > before.count(")") and not _is_closed(part):
                return False
        begins = not self.literals[0] and not self.kinds[0] and SENTENCE_END.search(parts[0])
        stopped = parts[-1].endswith((".", ";")) and not parts[-1].endswith("...")
        return not begins and not (stopped and not self.literals[-1] and self.kinds[-1] != "t")


class Match(NamedTuple):
    """The translation of a text."""

    complete: bool
    """No sentence of ours in it is left in English."""

    letters: int
    """How many letters of the text a template has; the rest it puts in."""

    text: str


class Catalogue:
    """All translations into one language."""

    def __init__(self, entries: Mapping[str, str]) -> None:
        self.entries = entries
        self._matches: dict[str, Match | None] = {}
        """The matches of the pieces of one line: its pieces are asked for again and again."""

        self._lock = Lock()
        self._nested = 0
        """How many parts the part that is translated now lies in."""

        self._texts = {text: translation for text, translation in entries.items() if not SLOT.search(text)}
        templates = [Template.parse(text, entries[text]) for text in entries.keys() - self._texts.keys()]
        self._templates = sorted(templates, key=_order)
        self._by_begin, self._by_end, self._by_neither = _by_edge(self._templates)

    @classmethod
    def read(cls, *files: Path) -> Self:
        return cls({text: translation for file in files for text, translation in read_po(file)})

    def translate(self, line: str) -> str:
        """The line with its text translated; blanks and a bullet before it stay, and a text without a template."""
        words = line.strip()
        words = words[len(MARK.match(words)[0]) :]  # type: ignore[index]  # it matches nothing, too
        if not LETTERS.search(words):
            return line
        if words in self._texts:  # no template says more about it than the text itself
            return line.replace(words, self._texts[words], 1)
        with self._lock:
            self._matches.clear()
            match = best(self._ended(words), self._sentences(words))
        return line if match is None else line.replace(words, match.text, 1)

    def _part(self, text: str) -> Match:
        """The translation of a part that is ours: of its sentences, those that have a template."""
        if (joint := text[:1]) in JOINTS:
            rest = self._part(text[1:])
            return rest._replace(text=JOINTS[joint] + rest.text)
        if joint == text[-1:] == "'" and " " in text and (quoted := self._match(text[1:-1])):
            return quoted._replace(text=f"“{quoted.text}”")
        text = text.strip()
        unknown = Match(complete=" " not in text, letters=0, text=text)
        if self._nested == MOST_NESTED:
            return unknown
        self._nested += 1
        try:
            known = self._whole(text) or self._foreign_with_remark(text) or self._sentences(text, whole=False)
        finally:
            self._nested -= 1
        return known or unknown

    def _foreign_with_remark(self, text: str) -> Match | None:
        """A text that another program wrote, with the translation of our remark in brackets behind it."""
        foreign, mark, remark = text.rpartition(" (")
        match = self._match(f"({remark}") if mark and remark.endswith(")") else None
        return match and match._replace(complete=False, text=f"{foreign}{match.text}")

    def _whole(self, text: str) -> Match | None:
        """The translation of sentences or of a list; None if a part of it has none."""
        return best(self._sentences(text), self._list(text))

    def _with_subject(self, text: str, subjects: int) -> Match | None:
        """The translation of a sentence with its subject before it: a file, a stage, a setting, or words of ours.

        A single word may be the name of a setting or column, and stays.
        """
        subject, *sentence = divided(text, SUBJECT_MARK, most=1)
        if not sentence or not subject or subjects == MOST_SUBJECTS:
            return None
        words = self._match(subject) if " " in subject else None
        match = self._ended(sentence[0], subjects + 1)
        named = words or ARTIFACT.fullmatch(subject) or Quotes.of(subject).masked.count(" ") <= 1
        if match is None or not named:
            return None
        return match._replace(text=f"{words.text if words else subject}{JOINTS[':']}{match.text}")

    def _list(self, text: str) -> Match | None:
        """The translation of a list, whose items are texts of ours, or words; None if an item is something else."""
        items, start, shown = divided(text, LIST_MARK), 0, []
        if not 1 < len(items) <= MOST_ITEMS or not LETTERS.search(text):
            return None
        while start < len(items):
            ends = range(min(start + LONGEST_ITEM, len(items)), start, -1)  # an item may have commas of its own
            runs = ((end, self._ended(", ".join(items[start:end]))) for end in ends)
            end, match = next(((end, match) for end, match in runs if match is not None), (start + 1, None))
            if match is None and " " in items[start]:
                return None
            shown.append(match or Match(complete=True, letters=0, text=items[start]))
            start = end
        return joined(shown, "、".join(match.text for match in shown))

    def _sentences(self, text: str, whole: bool = True) -> Match | None:
        """The translation of texts of ours that were joined: each time the longest run that has a template.

        None if there are many; and where the whole is asked for, if one of them has none.
        """
        sentences, start, matches, shown = divided(text, SENTENCES), 0, [], ""
        if len(sentences) > MOST_SENTENCES:
            return None
        while start < len(sentences):
            end, match = self._longest_run(sentences, start)
            if match is None and whole:
                return None
            blank = " " if shown and shown[-1] < FULL_WIDTH else ""
            matches.append(match or Match(complete=False, letters=0, text=sentences[start]))
            start, shown = end, f"{shown}{blank}{matches[-1].text}"
        return joined(matches, shown)

    def _longest_run(self, sentences: list[str], start: int) -> tuple[int, Match | None]:
        """The end of the longest run from `start` that has a template, best one that leaves nothing in English."""
        incomplete: tuple[int, Match | None] = start + 1, None
        for end in range(len(sentences), start, -1):
            match = self._ended(" ".join(sentences[start:end]))
            if match is not None and match.complete:
                return end, match
            if match is not None and incomplete[1] is None:
                incomplete = end, match
        return incomplete

    def _ended(self, text: str, subjects: int = 0) -> Match | None:
        """The translation of a text, or of the text without the mark at its end.

        Where a template of more letters fits behind a subject, the one that fits the whole has cut a sentence.
        """
        match = self._match(text)
        if match is None and (end := text[-1:]) in ENDS and not NAME.fullmatch(text):
            bare = self._match(text[:-1])
            match = bare and bare._replace(text=bare.text + ENDS[end])
        return best(match, self._with_subject(text, subjects))

    def _match(self, text: str) -> Match | None:
        """The translation of a text as one template has it, best one that leaves nothing of ours in English."""
        if text not in self._matches:
            self._matches[text] = self._first_match(text)
        return self._matches[text]

    def _first_match(self, text: str) -> Match | None:
        if text in self._texts:
            return Match(complete=True, letters=len(text), text=self._texts[text])
        incomplete = None
        for template in self._candidates(text):  # the longest first: it says most about the text
            parts = template.match(text)
            match = None if parts is None else self._filled(template, parts)
            if match is not None and match.complete:
                return best(match, incomplete)
            incomplete = incomplete or match
        return incomplete

    def _candidates(self, text: str) -> Iterator[Template]:
        """The templates that begin or end as the text does, in their order."""
        begin, end = self._by_begin.get(text[:EDGE], ()), self._by_end.get(text[-EDGE:], ())
        return (self._templates[number] for number in sorted((*begin, *end, *self._by_neither)))

    def _filled(self, template: Template, parts: list[str]) -> Match | None:
        """The translation with the parts; None if a short template would cut a sentence that it does not know."""
        shown, letters = list(parts), len("".join(template.literals))
        complete = not template.swallows(parts[-1])
        for number, (kind, before, part) in enumerate(zip(template.kinds, template.literals, parts, strict=False)):
            if kind == "t":
                match = self._part(part)
                if template.short and _is_long(before, part) and not (match.complete and match.letters):
                    return None
                shown[number], complete, letters = match.text, complete and match.complete, letters + match.letters
        text = SLOT.sub(lambda slot: _spaced(slot, shown[int(slot[1])]), template.translation)
        return Match(complete, letters, text)


def _by_edge(templates: Sequence[Template]) -> tuple[dict[str, list[int]], dict[str, list[int]], list[int]]:
    """Numbers of the templates by their first letters, by their last ones, and of those that have slots at both."""
    begins, ends, neither = defaultdict[str, list[int]](list), defaultdict[str, list[int]](list), list[int]()
    for number, template in enumerate(templates):
        first, last = template.literals[0], template.literals[-1]
        if len(first) >= EDGE:
            begins[first[:EDGE]].append(number)
        elif len(last) >= EDGE:
            ends[last[-EDGE:]].append(number)
        else:
            neither.append(number)
    return begins, ends, neither


def best(*matches: Match | None) -> Match | None:
    """The match whose templates have the most letters; of several the one that leaves no English, or the first."""
    return max(filter(None, matches), key=lambda match: (match.letters, match.complete), default=None)


def joined(matches: list[Match], text: str) -> Match:
    return Match(all(match.complete for match in matches), sum(match.letters for match in matches), text)


def _order(template: Template) -> tuple[object, ...]:
    """The longest first, and of equal ones that whose slot takes a number alone."""
    is_open = tuple(kind != "n" for kind in template.kinds)
    return -len("".join(template.literals)), template.literals, is_open, template.translation


def _is_closed(part: str) -> bool:
    """True if no bracket in a part closes one that was opened before it."""
    depth = 0
    for sign in part:
        depth += (sign == "(") - (sign == ")")
        if depth < 0:
            return False
    return True


def _is_long(before: str, part: str) -> bool:
    """True if a part is neither one word nor numbers, and nothing marks it: a colon, a bracket, or backticks."""
    marked = (
        before.endswith((": ", "(")) or part[:1] == part[-1:] == "`" or not (LETTERS.search(part) or "; " in part)
    )
    return not part.strip() or (" " in part and not marked)


def _spaced(slot: re.Match[str], text: str) -> str:
    """The text with a blank where Latin letters in it would touch a Chinese character of the translation."""
    before, behind = slot.string[: slot.start()][-1:], slot.string[slot.end() :][:1]
    left = " " if CHINESE.match(before) and LATIN.match(text[:1]) else ""
    right = " " if CHINESE.match(behind) and LATIN.match(text[-1:]) else ""
    return f"{left}{text}{right}"
