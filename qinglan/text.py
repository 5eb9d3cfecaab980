"""How Chinese text is cut, compared and made safe; the index, the reranker and the checks share it."""

import re
import unicodedata
from collections.abc import Collection, Iterator, Sequence

RUN = re.compile(r"\w+")
COPIED_RUN = 16
"""Characters in a row of somebody else's text, punctuation aside: longer than any name, so a copy."""

TOKEN_SIGNS = str.maketrans({"<": "＜", "[": "［"})
"""The signs with which control tokens begin: <|im_start|>, </s>, <think>, [INST]."""

MARKUP = re.compile(r"<[|｜/!?A-Za-z_][^<>]*>?|\[/?[A-Za-z_]+\]|[{}]|```")
"""Control tokens, tags, JSON and fences: no search query has them."""

LETTERS = 4
"""Letters of a word in Latin or Cyrillic script that say as much as a Chinese character."""

TOKEN = re.compile(r"[0-9A-Za-z\u00c0-\u052f]+|\w")
"""A word in letters, or one character of another script."""

MARK = re.compile(r"[^\w\s]|_")

CONTROL = re.compile(r"[\x00-\x1f\x7f\u2028\u2029]+")


def bigrams(text: str) -> list[str]:
    """Character pairs within each run of letters and digits; a lone character stands for itself."""
    out: list[str] = []
    for run in RUN.findall(text.lower()):
        out.extend([run[i : i + 2] for i in range(len(run) - 1)] or [run])
    return out


def bigram_coverage(text: str, grams: Collection[str]) -> float:
    """The share of the text's character pairs among these."""
    text_bigrams = bigrams(text)
    return sum(gram in grams for gram in text_bigrams) / len(text_bigrams) if text_bigrams else 0.0


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
