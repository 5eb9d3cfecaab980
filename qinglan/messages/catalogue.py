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
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
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

JOINTS = {",": "，", ";": "；", ":": "："}
"""Translation of the mark before a part that was joined to another text."""

ENDS = {".": "。", ";": "；", ":": "："}
"""Translation of the mark behind a text. The template may lack the mark if it was added when texts were joined."""

SENTENCES = re.compile(r"(?<=[.;!?]) ")
SENTENCE_END = re.compile(r"[.!?] [A-Za-z0-9`]|; ")
MOST_SENTENCES = 30
SUBJECT_MARK = re.compile(": ")
LIST_MARK = re.compile(", ")
MOST_SUBJECTS, MOST_NESTED = 4, 8
ARTIFACT = re.compile("[\\w./]+( [\\w./]+){0,3} [0-9a-f]{12}")
"""Pattern of an artifact's name, which may have blanks, and its digest, such as `prompt teacher 874df5cf2f8a`."""

MOST_ITEMS, LONGEST_ITEM = 40, 4
EDGE = 4
"""Number of letters at the beginning or the end of a text by which its possible templates are looked up."""

FEW_LETTERS = 8
"""Number of letters below which a template is short: it might match texts that mean something else."""

QUOTE = re.compile(r"""`[^`]*`|"[^"]*"|(?<![^\s([{,:=])'[^']*'(?!\w)|[{}]""")
FILLER = "·"

CHINESE, LATIN = re.compile("[\u4e00-\u9fff]"), re.compile("[A-Za-z0-9%]")
NAME = re.compile("[a-z_]+:")
"""Pattern of a single word before a colon, which may be the name of a setting or a column."""

FULL_WIDTH = "\u3000"
"""First of the full-width characters, after which no blank is written."""


class Quotes(NamedTuple):
    """Positions of the quotes, backquotes and braces in a text."""

    numbers: tuple[int, ...]
    """Number of the quote around each gap between two characters; 0 if the gap is outside all quotes."""

    masked: str
    """Text in which a filler replaces each quoted character, so that quoted full stops do not end a sentence."""

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
        """True if no quote lies partly inside and partly outside the text from `start` to `end`."""
        return self.numbers[start] == self.numbers[end]


def _outer_quotes(text: str) -> Iterator[tuple[int, int]]:
    """Yield begin and end of each quote that is not inside another quote. An unclosed opening sign is ignored."""
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
    """Divide a text at the marks that are outside quotes; with `most`, only at the first `most` of them."""
    quotes = Quotes.of(text)
    pieces, start = list[str](), 0
    for at in mark.finditer(text):
        if not quotes.numbers[at.start()] and (not most or len(pieces) < most):
            pieces.append(text[start : at.start()])
            start = at.end()
    return [*pieces, text[start:]]


class Template(NamedTuple):
    """English text with numbered slots, and its translation."""

    literals: tuple[str, ...]
    """Words before, between and behind the slots."""

    kinds: tuple[str, ...]
    """Kind of each slot: a number (n), a text of this program (t), or any text ("")."""

    short: bool
    """True if the template has few letters, so that it accepts only parts of one word or marked parts (_is_long)."""

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
        """Parts of the text that fill the slots; None if the text does not match. A slot ends at the next literal.

        The time grows linearly with the length of the text, even for a hostile text.
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
        """True if the last part contains the beginning of another sentence, which may have its own template."""
        is_open = self.literals[-1] in ("", ".") and self.kinds[-1] != "t"
        return is_open and SENTENCE_END.search(Quotes.of(part).masked) is not None

    def _fits(self, parts: list[str]) -> bool:
        """True if each part fits its slot: a number slot holds a number, and no part holds a piece of the sentence.

        Quotes in the parts are masked.
        """
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
    """Translation of a text, with figures that tell how well the templates matched."""

    complete: bool
    """True if no sentence of this program is left in English."""

    letters: int
    """Number of letters of the text that belong to templates; the rest is in slots."""

    text: str


class Catalogue:
    """All translations into one language."""

    def __init__(self, entries: Mapping[str, str]) -> None:
        self.entries = entries
        self._matches: dict[str, Match | None] = {}
        """Cache of the matches of one line's pieces, because each piece is looked up many times."""

        self._lock = Lock()
        self._nested = 0
        """Nesting depth of the part that is being translated."""

        self._texts = {text: translation for text, translation in entries.items() if not SLOT.search(text)}
        templates = [Template.parse(text, entries[text]) for text in entries.keys() - self._texts.keys()]
        self._templates = sorted(templates, key=_order)
        self._by_begin, self._by_end, self._by_neither = _by_edge(self._templates)

    @classmethod
    def read(cls, *files: Path) -> Self:
        return cls({text: translation for file in files for text, translation in read_po(file)})

    def translate(self, line: str) -> str:
        """Translate a line. Blanks and a bullet before the text stay; a text without a template is not changed."""
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
        """Translate a part that is a text of this program; its sentences without a template stay in English."""
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
        """Translate only the remark in brackets behind a text of another program; None if it has no template."""
        foreign, mark, remark = text.rpartition(" (")
        match = self._match(f"({remark}") if mark and remark.endswith(")") else None
        return match and match._replace(complete=False, text=f"{foreign}{match.text}")

    def _whole(self, text: str) -> Match | None:
        """Translate sentences or a list; None if a sentence or an item has no translation."""
        return best(self._sentences(text), self._list(text))

    def _with_subject(self, text: str, subjects: int) -> Match | None:
        """Translate a sentence after its subject and a colon; the subject is a file, a stage, a setting, or a text.

        A subject of one word is not translated, because it may be the name of a setting or column.
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
        """Translate a list of this program's texts or single words; None if an item is something else."""
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
        """Translate joined sentences: repeatedly find the longest run of sentences that has a template.

        None if there are more than MOST_SENTENCES or, with `whole`, if a sentence has no template.
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
        """Find the longest run of sentences from `start` that has a template. Returns its end and translation.

        A run whose translation is complete is preferred.
        """
        incomplete: tuple[int, Match | None] = start + 1, None
        for end in range(len(sentences), start, -1):
            match = self._ended(" ".join(sentences[start:end]))
            if match is not None and match.complete:
                return end, match
            if match is not None and incomplete[1] is None:
                incomplete = end, match
        return incomplete

    def _ended(self, text: str, subjects: int = 0) -> Match | None:
        """Translate a text, or the text without the mark at its end.

        If a template with more letters matches the text after a subject, it is preferred, because the template that
        matches the whole text has cut a sentence.
        """
        match = self._match(text)
        if match is None and (end := text[-1:]) in ENDS and not NAME.fullmatch(text):
            bare = self._match(text[:-1])
            match = bare and bare._replace(text=bare.text + ENDS[end])
        return best(match, self._with_subject(text, subjects))

    def _match(self, text: str) -> Match | None:
        """Translate a text by one template, preferably one that leaves no English; None if no template matches."""
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
        """Yield the templates that begin or end like the text, in the order of the templates."""
        begin, end = self._by_begin.get(text[:EDGE], ()), self._by_end.get(text[-EDGE:], ())
        return (self._templates[number] for number in sorted((*begin, *end, *self._by_neither)))

    def _filled(self, template: Template, parts: list[str]) -> Match | None:
        """Fill the parts into the template's translation; None if a short template would cut an unknown sentence."""
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
    """Index the templates by their first EDGE letters, else by their last EDGE letters; the list holds those with
    fewer letters at both ends."""
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
    """Choose the match whose templates have the most letters. If several do, prefer one that leaves no English."""
    return max(filter(None, matches), key=lambda match: (match.letters, match.complete), default=None)


def joined(matches: list[Match], text: str) -> Match:
    return Match(all(match.complete for match in matches), sum(match.letters for match in matches), text)


def _order(template: Template) -> tuple[object, ...]:
    """Sort key of templates: the longest first; of templates with equal words, the one whose slots are numbers."""
    is_open = tuple(kind != "n" for kind in template.kinds)
    return -len("".join(template.literals)), template.literals, is_open, template.translation


def _is_closed(part: str) -> bool:
    """True if no bracket in the part closes a bracket that was opened before the part."""
    depth = 0
    for sign in part:
        depth += (sign == "(") - (sign == ")")
        if depth < 0:
            return False
    return True


def _is_long(before: str, part: str) -> bool:
    """True if a part is empty, or has several words that neither a colon, a bracket nor backticks mark."""
    marked = (
        before.endswith((": ", "(")) or part[:1] == part[-1:] == "`" or not (LETTERS.search(part) or "; " in part)
    )
    return not part.strip() or (" " in part and not marked)


def _spaced(slot: re.Match[str], text: str) -> str:
    """Add a blank at each end of the text at which Latin letters would touch a Chinese character."""
    before, behind = slot.string[: slot.start()][-1:], slot.string[slot.end() :][:1]
    left = " " if CHINESE.match(before) and LATIN.match(text[:1]) else ""
    right = " " if CHINESE.match(behind) and LATIN.match(text[-1:]) else ""
    return f"{left}{text}{right}"
