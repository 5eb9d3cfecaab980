"""Templates of English texts with their translations, and the match of a text to its template.

msgid "{0}: {1:n} rows, {2}"
msgstr "{0}：{1} 行，{2:t}"

A text matches a template if it has the template's words in their order; each {N} holds what stands between them, and
{N:n} a number. The parts are put into the translation as they are, so nothing of a text is lost. A part that the
translation marks {N:t} is a text of ours, and is translated too; all other parts may be a user's words, and are not.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple, Self

from qinglan.messages.po import read_po

LETTERS = re.compile("[A-Za-z]{2}")
SLOT = re.compile(r"\{(\d+)(:[nt])?\}")
NUMBER = re.compile(r"\s*[-+]?(\d[\d,.]*(e[-+]?\d+)?%?|nan|inf)\s*")

MARK = re.compile(r"\s*(?:[-!✓✗·◇▶] |\[[^\]\s][^\]]*\] )?\s*")
"""The bullet, or the stage in brackets, before a sentence on a line; it is no part of a template."""

JOINTS = {",": "，", ";": "；", ":": "："}
"""Marks before a part that was joined to a text."""

ENDS = {".": "。", ";": "；", ":": "："}
"""Marks behind a text that its template may lack, as they were put there when it was joined to others."""

SENTENCES = re.compile(r"(?<=[.;!?]) ")
SENTENCE_END = re.compile(r"[.!?] [A-Z0-9]|; ")
MOST_SENTENCES = 30
PLACE_MARK, LIST_MARK = ": ", ", "
MOST_ITEMS, LONGEST_ITEM = 40, 4
FEW_LETTERS = 8
"""With fewer letters a template would match texts that mean something else."""

CHINESE, LATIN = re.compile("[\u4e00-\u9fff]"), re.compile("[A-Za-z0-9%]")
FULL_WIDTH = "\u3000"
"""The first of the full-width signs; behind them stands no blank."""


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
        parts = []
        for literal, kind in zip(middle, self.kinds[1:], strict=True):
            at = text.find(literal, start, end)
            while kind == "n" and at >= 0 and not NUMBER.match(text, at + len(literal)):
                at = text.find(literal, at + 1, end)
            if at < 0:
                return None
            parts.append(text[start:at])
            start = at + len(literal)
        parts.append(text[start:end])
        return parts if self._fits(parts) else None

    def _fits(self, parts: list[str]) -> bool:
        """True if numbers are numbers, and if nothing that is quoted is a part of the sentence itself."""
        for kind, before, part in zip(self.kinds, self.literals, parts, strict=False):
            if kind == "n" and not NUMBER.fullmatch(part):
                return False
            if not kind and (part != part.strip() or (self.short and _is_long(before, part))):
                return False
            if before.endswith("(") and not _is_closed(part):
                return False
        begins = not self.literals[0] and not self.kinds[0] and SENTENCE_END.search(parts[0])
        stopped = parts[-1].endswith((".", ";")) and not parts[-1].endswith("...")
        return not begins and not (stopped and not self.literals[-1] and self.kinds[-1] != "t")


class Catalogue:
    """All translations into one language."""

    def __init__(self, entries: Mapping[str, str]) -> None:
        self.entries = entries
        self._texts = {text: translation for text, translation in entries.items() if not SLOT.search(text)}
        templates = [Template.parse(text, entries[text]) for text in entries.keys() - self._texts.keys()]
        self._templates = sorted(
            templates, key=lambda template: (-len("".join(template.literals)), template.literals)
        )

    @classmethod
    def read(cls, *files: Path) -> Self:
        return cls({text: translation for file in files for text, translation in read_po(file)})

    def translate(self, line: str) -> str:
        """The line with its text translated; blanks and a bullet before it stay, and a text without a template."""
        words = line.strip()
        words = words[len(MARK.match(words)[0]) :]  # type: ignore[index]  # it matches nothing, too
        if not LETTERS.search(words):
            return line
        translation = self._ended(words)
        if translation is None:
            translation = self._sentences(words)
        return line if translation is None else line.replace(words, translation, 1)

    def translate_part(self, text: str) -> str:
        """The translation of a part that is ours: of its sentences, those that have a template."""
        if (joint := text[:1]) in JOINTS:
            return JOINTS[joint] + self.translate_part(text[1:])
        if joint == text[-1:] == "'" and (words := self._match(text[1:-1])):
            return f"“{words}”"
        text = text.strip()
        return self._whole(text) or self._sentences(text, whole=False) or text

    def _whole(self, text: str) -> str | None:
        """The translation of sentences or of a list; None if a part of it has none."""
        return self._sentences(text) or self._list(text)

    def _sentence_with_place(self, text: str) -> str | None:
        """The translation of a sentence with its place before it: a file, a stage, or a word of ours."""
        place, mark, sentence = text.partition(PLACE_MARK)
        place = self._match(place) or ("" if place.count(" ") > 1 else place)
        translation = self._ended(sentence) if mark and place else None
        return None if translation is None else f"{place}{JOINTS[mark[0]]}{translation}"

    def _list(self, text: str) -> str | None:
        """The translation of a list, whose items are texts of ours, or words; None if an item is something else."""
        items, start, shown = text.split(LIST_MARK), 0, []
        if not 1 < len(items) <= MOST_ITEMS:
            return None
        while start < len(items):
            ends = range(min(start + LONGEST_ITEM, len(items)), start, -1)  # an item may have commas of its own
            runs = ((end, self._ended(LIST_MARK.join(items[start:end]))) for end in ends)
            word = (start + 1, None if " " in items[start] else items[start])
            start, item = next(((end, run) for end, run in runs if run is not None), word)
            if item is None:
                return None
            shown.append(item)
        return "、".join(shown)

    def _sentences(self, text: str, whole: bool = True) -> str | None:
        """The translation of texts of ours that were joined: each time the longest run that has a template.

        None if there are many; and where the whole is asked for, if one of them has none.
        """
        sentences, start, shown = SENTENCES.split(text), 0, ""
        if len(sentences) > MOST_SENTENCES:
            return None
        while start < len(sentences):
            ends = range(len(sentences), start, -1)
            runs = ((end, self._ended(" ".join(sentences[start:end]))) for end in ends)
            end, run = next(((end, run) for end, run in runs if run is not None), (start + 1, None))
            if run is None and whole:
                return None
            blank = " " if shown and shown[-1] < FULL_WIDTH else ""
            start, shown = end, f"{shown}{blank}{sentences[start] if run is None else run}"
        return shown

    def _ended(self, text: str) -> str | None:
        """The translation of a text, or of the text without the mark at its end."""
        translation = self._match(text)
        if translation is None and (end := text[-1:]) in ENDS:
            translation = self._match(text[:-1])
            translation = None if translation is None else translation + ENDS[end]
        return self._sentence_with_place(text) if translation is None else translation

    def _match(self, text: str) -> str | None:
        if text in self._texts:
            return self._texts[text]
        for template in self._templates:  # the longest first: it says most about the text
            parts = template.match(text)
            if parts is not None and (translation := self._filled(template, parts)) is not None:
                return translation
        return None

    def _filled(self, template: Template, parts: list[str]) -> str | None:
        """The translation with the parts; None if a short template would cut a sentence that it does not know."""
        shown = list(parts)
        for place, (kind, before, part) in enumerate(zip(template.kinds, template.literals, parts, strict=False)):
            if kind == "t":
                if template.short and _is_long(before, part) and self._whole(part) is None:
                    return None
                shown[place] = self.translate_part(part)
        return SLOT.sub(lambda slot: _spaced(slot, shown[int(slot[1])]), template.translation)


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
