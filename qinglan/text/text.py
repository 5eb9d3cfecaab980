"""Cuts text in any language into terms, compares it and makes it safe; index, reranker and checks share this."""

import re
import unicodedata
from collections.abc import Collection, Iterator, Sequence
from functools import lru_cache

RUN = re.compile(r"\w+")

LETTER = "0-9A-Za-z\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u052f"
"""Digits, and letters of scripts with spaces between words: Latin, Greek, Cyrillic."""

WORD = re.compile(f"[{LETTER}]{{2,64}}")
"""A word of 2 to 64 letters. Longer words are cut, so that a search engine never stores a whole file as one word."""

LONE = re.compile(r"(?<!\w)\w(?!\w)")
SHORTEST_STEMMED = 4
CACHED_TEXTS = 1 << 12
COPIED_RUN = 16
"""Length from which a run of tokens counts as copied, in Chinese characters; four letters count as one. A shorter run
may be a name."""

TOKEN_SIGNS = str.maketrans({"<": "＜", "[": "［"})
"""Full-width replacements for the signs with which control tokens begin: <|im_start|>, </s>, <think>, [INST]."""

MARKUP = re.compile(r"<[|｜/!?A-Za-z_][^<>]*>?|\[/?[A-Za-z_]+\]|[{}]|```")
"""Pattern of control tokens, tags, JSON and code fences, which no search query has."""

LETTERS = 4
"""Number of letters of a word in Latin or Cyrillic script that count as one Chinese character."""

TOKEN = re.compile(rf"[{LETTER}]+|\w")
"""A word in letters, or one character of another script."""

MARK = re.compile(r"[^\w\s]|_")

HAN = re.compile("[\u4e00-\u9fff]")
CHINESE_SHARE = 0.1

FILLERS = "\u115f\u1160\u2800\u3164\uffa0"
"""Characters that are invisible but do not count as spaces: Hangul fillers, the empty Braille pattern."""

CONTROL = re.compile(r"[\x00-\x1f\x7f\u2028\u2029]+")


def as_sentence(text: str) -> str:
    """Add a full stop to a text that ends without an end mark, so that another sentence can follow."""
    text = text.strip()
    return text if not text or text[-1] in ".!?…。！？" else f"{text}."


def with_line_feeds(text: str) -> str:
    """Convert all line ends to line feeds. Windows writes CR and LF, an old Mac only CR."""
    return text.replace("\r\n", "\n").replace("\r", "\n")


def search_terms(text: str) -> list[str]:
    """Split a text in any language into terms, as the index holds them: character pairs, and whole words in letters.

    "维生素B12 胶囊" is 维生, 生素, 素b, 胶囊, b12; "Vitamin B12 capsules" is vitamin, b12, capsule.
    Letters of one word make no pairs, and a run of one character is a term.
    """
    lower = text.lower()
    terms: list[str] = []
    for run in RUN.findall(lower):
        pairs = [run[at : at + 2] for at in range(len(run) - 1)] or [run]
        terms += filter(is_pair, pairs) if WORD.search(run) else pairs
    return [*terms, *words(lower)]


def is_pair(term: str) -> bool:
    """True for a pair of characters that is not a word of two letters."""
    return len(term) == 2 and not WORD.match(term)


def words(text: str) -> Iterator[str]:
    """Return the stems of the words (see WORD) of a lower-case text."""
    return map(stem, WORD.findall(text))


def whole_terms(text: str) -> frozenset[str]:
    """Return the terms of a lower-case text that are not pairs: lone characters and stems of words. Python's `in`
    cannot find them in the text reliably."""
    return frozenset(LONE.findall(text)) | frozenset(words(text))


def stem(word: str) -> str:
    """Remove an English plural ending from a word, by Harman's rules and by rules for words like boxes and dishes."""
    if not word.endswith("s") or len(word) < SHORTEST_STEMMED or not word.isascii():
        return word
    if word.endswith("ies") and word[-4] not in "ae":
        return f"{word[:-3]}y"
    if word.endswith(("xes", "ches", "shes", "sses")):
        return word[:-2]
    if (word.endswith("es") and word[-3] in "aeo") or word[-2] in "us":
        return word
    return word[:-1]


def term_coverage(text: str, known: Collection[str]) -> float:
    """Return the share of the text's terms that are in `known`; 0 for a text without terms."""
    terms = search_terms(text)
    return sum(term in known for term in terms) / len(terms) if terms else 0.0


def normalise(text: str) -> str:
    """Remove differences of width, case, punctuation and spaces from a text."""
    return "".join(RUN.findall(unicodedata.normalize("NFKC", text).lower()))


def is_chinese(text: str) -> bool:
    """True if at least a tenth of the characters are Chinese: Chinese texts may hold many names in letters."""
    return bool(text) and len(HAN.findall(text)) >= CHINESE_SHARE * len(text)


def is_blank(text: str) -> bool:
    """True if a text is empty or invisible: spaces, zero-width letters, marks without a letter, fillers."""
    if not text or text.isspace():
        return True
    return all(sign in FILLERS or unicodedata.category(sign)[0] in "CZM" for sign in text)


def one_line(text: str) -> str:
    """Put a text on one line, so that it cannot begin another field of a prompt."""
    return CONTROL.sub(" ", text).strip()


def neutralise_tokens(text: str) -> str:
    """Replace brackets by full-width brackets. A reader sees the same text, but no tokenizer reads a control token in
    it."""
    return text.translate(TOKEN_SIGNS)


def is_copied(text: str, free: Sequence[str], sources: Sequence[str]) -> bool:
    """True if the text copies a long run of tokens from a source, and none of the `free` texts holds that run."""
    return any(copied_tokens(text, free, sources))


def copied_tokens(text: str, free: Sequence[str], sources: Sequence[str]) -> list[bool]:
    """Return for each token if it belongs to a long run that a source holds, and none of the `free` texts holds that
    run."""
    tokens = text_tokens(text)
    copied = [False] * len(tokens)
    joined_free, joined_sources = list(map(_joined_tokens, free)), list(map(_joined_tokens, sources))
    for start, end in _long_runs(tokens):
        run = _joined(tokens[start:end])
        if any(run in source for source in joined_sources) and not any(run in known for known in joined_free):
            copied[start:end] = [True] * (end - start)
    return copied


def text_length(text: str) -> int:
    """Return the length in Chinese characters: four letters of another script count as one, spaces as none."""
    plain = unicodedata.normalize("NFKC", text)
    return sum(map(token_length, TOKEN.findall(plain))) + len(MARK.findall(plain))


def text_tokens(text: str) -> list[str]:
    """Return the words in letters, and each other character, of a text, without differences of width and case."""
    return TOKEN.findall(unicodedata.normalize("NFKC", text).lower())


def token_length(token: str) -> int:
    return -(-len(token) // LETTERS)


def _joined(tokens: Sequence[str]) -> str:
    """Join tokens with a space around each, so that a run of whole words does not match inside another word."""
    return f" {' '.join(tokens)} "


@lru_cache(CACHED_TEXTS)
def _joined_tokens(text: str) -> str:
    return _joined(text_tokens(text))


def _long_runs(tokens: Sequence[str]) -> Iterator[tuple[int, int]]:
    """Yield, for each token, start and end of the shortest run that begins there and has the length COPIED_RUN."""
    lengths = [token_length(token) for token in tokens]
    end = length = 0
    # Two pointers: each token enters and leaves the window once.
    for start in range(len(tokens)):
        while end < len(tokens) and length < COPIED_RUN:
            length, end = length + lengths[end], end + 1
        if length < COPIED_RUN:
            return
        yield start, end
        length -= lengths[start]
