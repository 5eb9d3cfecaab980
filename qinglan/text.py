"""How Chinese text is cut, compared and made safe; the index, the reranker and the checks share it."""

import re
import unicodedata
from collections.abc import Collection, Sequence

RUN = re.compile(r"\w+")
COPIED_RUN = 16
"""Characters in a row of somebody else's text, punctuation aside: longer than any name, so a copy."""

TOKEN_SIGNS = str.maketrans({"<": "＜", "[": "［"})
"""The signs with which control tokens begin: <|im_start|>, </s>, <think>, [INST]."""

MARKUP = re.compile(r"<[|｜/!?A-Za-z_][^<>]*>?|\[/?[A-Za-z_]+\]|[{}]|```")
"""Control tokens, tags, JSON and fences: no search query has them."""

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
    """True if a normalised text holds a long run of a source that the question does not hold."""
    question = normalise(question_text)
    runs = {text[at : at + COPIED_RUN] for at in range(len(text) - COPIED_RUN + 1)}
    runs = {run for run in runs if run not in question}
    return bool(runs) and any(run in source for source in map(normalise, sources) for run in runs)
