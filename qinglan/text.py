"""How text in any language is cut, compared and made safe; the index, the reranker and the checks share it."""

import re
import unicodedata
from collections.abc import Collection, Iterator, Sequence

RUN = re.compile(r"\w+")

LETTER = "0-9A-Za-z\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u052f"
"""Digits, and letters of scripts with spaces between words: Latin, Greek, Cyrillic."""

WORD = re.compile(f"[{LETTER}]{{2,64}}")
"""Longer ones are cut: no search engine has to keep a file as one word."""

LONE = re.compile(r"(?<!\w)\w(?!\w)")
SHORTEST_STEMMED = 4
COPIED_RUN = 16
"""Characters in a row of somebody else's text, punctuation aside: longer than any name, so a copy."""

TOKEN_SIGNS = str.maketrans({"<": "＜", "[": "［"})
"""The signs with which control tokens begin: <|im_start|>, </s>, <think>, [INST]."""

MARKUP = re.compile(r"<[|｜/!?A-Za-z_][^<>]*>?|\[/?[A-Za-z_]+\]|[{}]|```")
"""Control tokens, tags, JSON and fences: no search query has them."""

LETTERS = 4
"""Letters of a word in Latin or Cyrillic script that say as much as a Chinese character."""

TOKEN = re.compile(rf"[{LETTER}]+|\w")
"""A word in letters, or one character of another script."""

MARK = re.compile(r"[^\w\s]|_")

CONTROL = re.compile(r"[\x00-\x1f\x7f\u2028\u2029]+")


def search_terms(text: str) -> list[str]:
    """Terms of a text in any language, as the index holds them: character pairs, and whole words in letters.

    "维生素B12 胶囊" is 维生, 生素, 素b, 胶囊, b12; "Vitamin B12 capsules" is vitamin, b12, capsule.
    Letters of one word make no pairs, and a run of one character stands for itself.
    """
    lower = text.lower()
    terms: list[str] = []
    for run in RUN.findall(lower):
        pairs = [run[at : at + 2] for at in range(len(run) - 1)] or [run]
        terms += filter(is_pair, pairs) if WORD.search(run) else pairs
    return [*terms, *words(lower)]


def is_pair(term: str) -> bool:
    """True for a pair of characters that is no word of two letters."""
    return len(term) == 2 and not WORD.match(term)


def words(text: str) -> Iterator[str]:
    """Stems of the words in letters of a text in lower case."""
    return map(stem, WORD.findall(text))


def whole_terms(text: str) -> frozenset[str]:
    """Terms of a text in lower case that are no pairs, so that finding them in it takes more than `in`."""
    return frozenset(LONE.findall(text)) | frozenset(words(text))


def stem(word: str) -> str:
    """The word without the ending of an English plural, by Harman's rules and those for boxes and dishes."""
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
    """The share of the text's terms among these."""
    terms = search_terms(text)
    return sum(term in known for term in terms) / len(terms) if terms else 0.0


def normalise(text: str) -> str:
    """The text without differences of width, case, punctuation and spaces."""
    return "".join(RUN.findall(unicodedata.normalize("NFKC", text).lower()))


def one_line(text: str) -> str:
    """The text on one line: a field that cannot open another field of a prompt."""
    return CONTROL.sub(" ", text).strip()


def neutralise_tokens(text: str) -> str:
    """The text with full-width brackets: no tokenizer reads a control token in it, and a reader sees the same."""
    return text.translate(TOKEN_SIGNS)


def is_copied(text: str, question_text: str, sources: Sequence[str]) -> bool:
    """True if the text holds a long run of a source that the question does not hold."""
    question = _joined(_tokens(question_text))
    runs = {run for run in map(_joined, _long_runs(_tokens(text))) if run not in question}
    return bool(runs) and any(run in source for source in map(_joined, map(_tokens, sources)) for run in runs)


def text_length(text: str) -> int:
    """Length in Chinese characters: four letters of another script count as one, spaces as none."""
    plain = unicodedata.normalize("NFKC", text)
    return sum(map(_token_length, TOKEN.findall(plain))) + len(MARK.findall(plain))


def _tokens(text: str) -> list[str]:
    return TOKEN.findall(unicodedata.normalize("NFKC", text).lower())


def _token_length(token: str) -> int:
    return -(-len(token) // LETTERS)


def _joined(tokens: Sequence[str]) -> str:
    """The tokens with a space around each: a run of whole words is no part of another word."""
    return f" {' '.join(tokens)} "


def _long_runs(tokens: Sequence[str]) -> Iterator[Sequence[str]]:
    """The shortest runs from each token on that are as long as a copy."""
    lengths = [_token_length(token) for token in tokens]
    end = length = 0
    for start in range(len(tokens)):
        while end < len(tokens) and length < COPIED_RUN:
            length, end = length + lengths[end], end + 1
        if length < COPIED_RUN:
            return
        yield tokens[start:end]
        length -= lengths[start]
