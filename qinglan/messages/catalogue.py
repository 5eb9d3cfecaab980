"""Translate texts by templates: find the template that an English text matches, and fill its translation.

msgid "{0}: {1:n} rows, {2}"
msgstr "{0}：{1} 行，{2:t}"

A text matches a template if it has the template's words in the same order. The slot {N} stands for any part between
the words, and {N:n} for a number. Each part is copied into the translation unchanged, so nothing of the text is lost.
A part that the translation marks as {N:t} is a text of this program, so it is translated too. All other parts may be
a user's words, and are not translated. A text is never divided inside quotes, backquotes or braces, so an example of
JSON counts as one word.
"""

import re
from collections import defaultdict
from collections.abc import Callable, Mapping
from functools import lru_cache
from heapq import merge
from pathlib import Path
from threading import Lock
from typing import NamedTuple, Self

from qinglan.messages.po import read_po

LETTERS = re.compile("[A-Za-z]{2}|[0-9] [a-z]$")
"""Pattern of a word, or of a unit behind a number. A text with neither needs no translation."""

SLOT = re.compile(r"\{(\d+)(:[nt])?\}")
NUMBER = re.compile(r"\s*[-+]?(\d[\d,.]*(e[-+]?\d+)?%?|nan|inf)\s*")

MARK = re.compile(r"\s*(?:[-!✓✗·◇▶] |\[[^\]\s][^\]]*\] )?\s*")
"""Pattern of the bullet, or of the stage in brackets, before a sentence on a line; templates do not contain it."""

ENDS = {".": "。", ",": "，", ";": "；", ":": "："}
"""Punctuation marks that join texts, with their Chinese forms. A template may lack the mark at the end of a text."""

SENTENCES = re.compile(r"(?<=[.;!?]) ")
SENTENCE_END = re.compile(r"[.!?] [A-Za-z0-9`]|; ")
LIST_MARK, SUBJECT_MARK = re.compile(", "), re.compile(": ")
MOST_PIECES, MOST_NESTED = 30, 8
EDGE = 4
"""Number of letters at the beginning or at the end of a text, by which its possible templates are looked up."""

FEW_LETTERS, FEWEST_LETTERS = 8, 2
"""Number of letters in a template below which it is short: it could match texts that mean something else, so its
slots take only single words or marked parts (_may_fill). With at most FEWEST_LETTERS, as in `{0} of {1}`, the parts
may not all be plain words."""

PLAIN_WORDS = re.compile("[A-Za-z ]+[.;:]?")

BRACES = r"\{[^{}]*\}"
for _ in range(3):  # objects within objects
    BRACES = rf"\{{(?:[^{{}}]|{BRACES})*\}}"
QUOTE = re.compile(rf"""`[^`]*`|"[^"]*"|(?<![^\s([{{,:=])'[^']*'(?!\w)|{BRACES}""")

CHINESE, LATIN = re.compile("[\u4e00-\u9fff]"), re.compile("[A-Za-z0-9%]")
FULL_WIDTH = "\u3000"
"""First full-width character. No blank is written after such a character."""


def masked(text: str) -> str:
    """Replace each character inside a quote by a dot, so that marks inside a quote neither divide nor end a
    sentence."""
    return QUOTE.sub(lambda quote: f"{quote[0][0]}{'·' * (len(quote[0]) - 2)}{quote[0][-1]}", text)


@lru_cache(maxsize=32)
def quote_numbers(text: str) -> list[int]:
    """Return, for each gap between two characters, the number of the quote around it; 0 if the gap is outside all
    quotes."""
    numbers = [0] * (len(text) + 1)
    for number, quote in enumerate(QUOTE.finditer(text), 1):
        numbers[quote.start() + 1 : quote.end()] = [number] * (len(quote[0]) - 1)
    return numbers


def divided(text: str, mark: re.Pattern[str]) -> list[str]:
    """Divide a text at the marks that are outside quotes."""
    pieces, start = list[str](), 0
    for at in mark.finditer(masked(text)):
        pieces.append(text[start : at.start()])
        start = at.end()
    return [*pieces, text[start:]]


class Template(NamedTuple):
    """English text with numbered slots, and its translation."""

    literals: tuple[str, ...]
    """Words before, between and behind the slots."""

    kinds: tuple[str, ...]
    """Kind of each slot: "n" for a number, "t" for a text of this program, "" for any text."""

    translation: str

    @property
    def size(self) -> int:
        return sum(map(len, self.literals))

    def rank(self) -> tuple[int, bool]:
        """Return the sort key. A longer template comes first, because it says more about a text; of equal ones, a
        template with a number slot."""
        return -self.size, "n" not in self.kinds

    @property
    def letters(self) -> int:
        return sum(map(str.isalpha, "".join(self.literals)))

    @classmethod
    def parse(cls, text: str, translation: str) -> Self:
        literals = tuple(SLOT.sub("\0", text).split("\0"))
        slots = SLOT.finditer(text)
        kinds = ("t" if f"{{{slot[1]}:t}}" in translation else (slot[2] or "")[1:] for slot in slots)
        return cls(literals, tuple(kinds), translation)

    def match(self, text: str) -> list[str] | None:
        """Return the parts of the text that fill the slots; None if the text does not match. A slot ends at the next
        literal.

        The time grows linearly with the length of the text, even for a hostile text.
        """
        first, *middle, last = self.literals
        start, end = len(first), len(text) - len(last)
        if end < start or not text.startswith(first) or not text.endswith(last):
            return None
        quotes, parts = quote_numbers(text), list[str]()
        for literal, kind in zip(middle, self.kinds[1:], strict=True):
            at = text.find(literal, start, end)
            while at >= 0 and (
                quotes[at] != quotes[start] or (kind == "n" and not NUMBER.match(text, at + len(literal)))
            ):
                at = text.find(literal, at + 1, end)
            if at < 0:
                return None
            parts.append(text[start:at])
            start = at + len(literal)
        parts.append(text[start:end])
        return parts if quotes[start] == quotes[end] and self._fits([*map(masked, parts)]) else None

    def _fits(self, parts: list[str]) -> bool:
        """True if each part fits its slot: only numbers fill a number's slot, and no part contains a piece of the
        sentence."""
        letters = self.letters
        for kind, before, part in zip(self.kinds, self.literals, parts, strict=False):
            if kind == "n" and not NUMBER.fullmatch(part):
                return False
            if not kind and (part != part.strip() or (letters < FEW_LETTERS and not _may_fill(before, part))):
                return False
            if part.count(")") > part.count("(") and "(" in before:
                return False
        for_names = "" in self.kinds and "n" not in self.kinds
        if letters <= FEWEST_LETTERS and for_names and all(map(PLAIN_WORDS.fullmatch, parts)):
            return False  # "Seed of the faults." has no name or number between the words
        # A first part with a whole sentence in it, or a last one with a full stop, belongs to another template.
        begins = not self.literals[0] and not self.kinds[0] and SENTENCE_END.search(parts[0])
        stopped = parts[-1].endswith((".", ";")) and not parts[-1].endswith("...")
        return not begins and not (stopped and not self.literals[-1] and self.kinds[-1] != "t")


class Match(NamedTuple):
    """Translation of a text, and the number of the text's characters that templates cover. Characters in slots do not
    count."""

    letters: int
    text: str


class Catalogue:
    """All translations into one language."""

    def __init__(self, entries: Mapping[str, str]) -> None:
        self.entries = entries
        self._matches: dict[str, Match | None] = {}
        """Cache for the matches of one line's pieces, because each piece is looked up many times."""

        self._lock = Lock()
        self._nested = 0
        """Nesting depth of the part that is being translated."""

        templates = [Template.parse(text, entries[text]) for text in entries if SLOT.search(text)]
        self._templates = defaultdict[str, list[Template]](list)
        """Templates, best first, by their first EDGE letters; by their last if fewer are before the first slot."""

        for template in sorted(templates, key=Template.rank):
            first, last = template.literals[0], template.literals[-1]
            begin, end = first[:EDGE], f"...{last[-EDGE:]}"
            self._templates[begin if len(first) >= EDGE else end if len(last) >= EDGE else ""].append(template)

    @classmethod
    def read(cls, *files: Path) -> Self:
        return cls({text: translation for file in files for text, translation in read_po(file)})

    def translate(self, line: str) -> str:
        """Translate a line. Blanks and a bullet before the text are not changed, nor is a text without a template."""
        words = line.strip()
        words = words[len(MARK.match(words)[0]) :]  # type: ignore[index]  # it also matches an empty text
        if not LETTERS.search(words):
            return line
        # The server's threads share this catalogue, but the cache holds the matches of one line only.
        with self._lock:
            self._matches.clear()
            match = _best(self._match(words), self._sentences(words, whole=True))
        return line.replace(words, match.text, 1) if match else line

    def _match(self, text: str) -> Match | None:
        """Translate a text by one template: as a whole, without the mark at its end, or as a sentence behind a
        subject."""
        if text in self._matches or self._nested == MOST_NESTED:
            return self._matches.get(text)
        self._nested += 1
        try:
            bare = None
            if (end := text[-1:]) in ENDS and (bare := self._by_template(text[:-1])):
                bare = bare._replace(text=bare.text + ENDS[end])
            self._matches[text] = match = _best(self._by_template(text), bare, self._with_subject(text))
        finally:
            self._nested -= 1
        return match

    def _by_template(self, text: str) -> Match | None:
        if text in self.entries and not SLOT.search(text):
            return Match(len(text), self.entries[text])
        edges = (text[:EDGE], f"...{text[-EDGE:]}", "")
        templates = merge(*(self._templates.get(edge, ()) for edge in edges), key=Template.rank)
        matches = ((template, template.match(text)) for template in templates)
        filled = (self._filled(template, parts) for template, parts in matches if parts is not None)
        return next(filter(None, filled), None)

    def _filled(self, template: Template, parts: list[str]) -> Match | None:
        """Fill the template's translation; None if the template is short and would cut a sentence that has no
        template."""
        shown, letters = list(parts), template.size
        for number, (kind, before, part) in enumerate(zip(template.kinds, template.literals, parts, strict=False)):
            if kind == "t":
                match = self._part(part)
                if template.letters < FEW_LETTERS and not match.letters and not _may_fill(before, part):
                    return None
                shown[number], letters = match.text, letters + match.letters
        return Match(letters, SLOT.sub(lambda slot: _spaced(slot, shown[int(slot[1])]), template.translation))

    def _part(self, text: str) -> Match:
        """Translate a part that is a text of this program. Sentences of it that have no template stay in English."""
        if text[:1] in ENDS:
            rest = self._part(text[1:])
            return rest._replace(text=ENDS[text[0]] + rest.text)
        text = text.strip()
        return _best(self._match(text), self._list(text), self._sentences(text, whole=False)) or Match(0, text)

    def _with_subject(self, text: str) -> Match | None:
        """Translate a sentence after its subject and a colon; the subject is a file, a stage, a setting, or a text.

        A subject of one word is not translated, because it may be the name of a setting or column.
        """
        mark = SUBJECT_MARK.search(masked(text))
        match = self._match(text[mark.end() :]) if mark and mark.start() else None
        if mark is None or match is None:
            return None
        subject = text[: mark.start()]
        words = self._match(subject) if " " in subject else None
        is_name = masked(subject).count(" ") <= 2
        return match._replace(text=f"{words.text if words else subject}：{match.text}") if words or is_name else None

    def _list(self, text: str) -> Match | None:
        """Translate a list of this program's texts or single words; None if an item is something else."""
        return self._joined(divided(text, LIST_MARK), ", ", lambda item: " " not in item)

    def _sentences(self, text: str, whole: bool) -> Match | None:
        """Translate sentences one by one; with `whole`, None if a sentence has no template."""
        return self._joined(divided(text, SENTENCES), " ", lambda _: not whole)

    def _joined(self, pieces: list[str], joint: str, may_stay: Callable[[str], bool]) -> Match | None:
        """Translate pieces that `joint` joins. A template may cover several pieces. The pieces are grouped in the way
        that puts the most letters into templates."""
        if not 1 < len(pieces) <= MOST_PIECES:
            return None
        # Dynamic programming: the best way to divide N pieces ends with a template over the last few of them, and
        # divides the pieces before it in the best way.
        begun: list[Match | None] = [Match(0, "")]
        """Best translation of the first N pieces."""

        for end in range(1, len(pieces) + 1):
            options = []
            for start in range(end - 1, -1, -1):
                before, match = begun[start], self._match(joint.join(pieces[start:end]))
                if match is None and start == end - 1 and may_stay(pieces[start]):
                    match = Match(0, pieces[start])
                if before and match:
                    options.append(Match(before.letters + match.letters, _glued(before.text, match.text, joint)))
            begun.append(_best(*options))
        return begun[-1]


def _best(*matches: Match | None) -> Match | None:
    """Choose the match whose templates cover the most letters; if several do, the first of them."""
    return max(filter(None, matches), key=lambda match: match.letters, default=None)


def _glued(before: str, text: str, joint: str) -> str:
    if joint == ", ":
        return f"{before}、{text}" if before else text
    return f"{before} {text}" if before and before[-1] < FULL_WIDTH else f"{before}{text}"


def _may_fill(before: str, part: str) -> bool:
    """True if a part may fill a slot of a short template: one word, or several if a colon, bracket or backtick marks
    them."""
    marked = before.endswith((": ", "(")) or part[:1] == part[-1:] == "`"
    return bool(part.strip()) and (" " not in part or marked or not (LETTERS.search(part) or "; " in part))


def _spaced(slot: re.Match[str], text: str) -> str:
    """Add a blank before and after the text where a Latin letter would otherwise touch a Chinese character."""
    before, behind = slot.string[: slot.start()][-1:], slot.string[slot.end() :][:1]
    left = " " if CHINESE.match(before) and LATIN.match(text[:1]) else ""
    right = " " if CHINESE.match(behind) and LATIN.match(text[-1:]) else ""
    return f"{left}{text}{right}"
