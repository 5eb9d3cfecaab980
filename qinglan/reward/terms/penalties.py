"""Measure the faults for which a rewrite is penalised: length, repetition, invented words and invented numbers."""

import unicodedata
from collections.abc import Sequence, Set
from functools import lru_cache
from itertools import groupby

from qinglan.reward.episode import Prompt, RetrievalResult
from qinglan.text.numerals import NUMBER
from qinglan.text.quantities import numbers_without_source
from qinglan.text.text import RUN, WORD, normalise, search_terms, stem

SHORTEST_REFERENCE = 8
"""Smallest reference length in characters; a rewrite's length is divided by the reference length."""

GRAM = 3
STEM_LENGTH = 5
"""Number of first letters that forms of one word have in common, such as release and releasing."""

STOP_WORDS = (
    "什么 怎么 怎样 如何 多少 哪些 哪个 哪里 是否 可以 能否 能不能 有没有 有哪些 是什么 为什么 多久 几次 请问 关于 "
    "以及 推荐 建议 方法 相关 介绍 说明 信息 问题 情况 注意事项 "
    "what how why when where which who whose is are was were be been do does did has have had can could may might "
    "should would will must and or but not no if of in on at by for from with without about into to than as per the "
    "an this that these those there it its their his her your our my me you we they she he please tell explain list "
    "much many long often recommended information detail guide besides aside addition apart other others else also "
    "being having after before between during along together against while regarding such some any more most than "
    "him them us happen happened get got make made say said mention mentioned take use used"
)
"""Question words and connecting words; they never count as invented."""


def hinge(value: float, free: float, full: float) -> float:
    """Map a value to [0, 1]: 0 up to `free`, 1 from `full` on, linear in between."""
    return min(1.0, max(0.0, (value - free) / (full - free)))


def length_ratio(rewrite: str, prompt: Prompt) -> float:
    """Return the rewrite's length divided by that of the need or of the teacher's rewrite, whichever is longer."""
    return len(rewrite) / max(len(prompt.need), len(prompt.teacher_rewrite), SHORTEST_REFERENCE)


def repetition_share(rewrite: str) -> float:
    """Return the share of the rewrite's character triples that already occurred earlier in the rewrite."""
    text = normalise(rewrite)
    grams = [text[at : at + GRAM] for at in range(len(text) - GRAM + 1)]
    return 1 - len(set(grams)) / len(grams) if grams else 0.0


def invented_words(rewrite: str, prompt: Prompt, retrieved: RetrievalResult) -> float:
    """Return the share of the rewrite's characters in words that neither conversation nor retrieved passages hold.

    A word in letters is known if the conversation or a passage holds a form of it. Any other character, such as a
    Chinese one, is known if they hold it together with one of its neighbours. A single unknown character does not
    count, since it may join two known words; two in a row count as an invented word.
    """
    passages = (text for hit in retrieved.hits for text in (hit.title, hit.content))
    sources = [*map(_terms, (prompt.context, STOP_WORDS, *passages))]
    runs = RUN.findall(_folded(NUMBER.sub(" ", unicodedata.normalize("NFKC", rewrite))))
    total = sum(map(len, runs))
    return sum(_unsupported_characters(run, sources) for run in runs) / total if total else 0.0


def invented_numbers(rewrite: str, prompt: Prompt) -> int:
    """Count the rewrite's numbers that the conversation does not hold in any writing."""
    return len(numbers_without_source(rewrite, (prompt.context,)))


def _folded(text: str) -> str:
    return unicodedata.normalize("NFKC", text).lower()


@lru_cache(maxsize=512)
def _terms(text: str) -> frozenset[str]:
    """Return the terms of a text. They are cached, since a prompt's samples share conversation and many passages."""
    terms = search_terms(_folded(text))
    return frozenset(terms) | {term[:STEM_LENGTH] for term in terms}


def _unsupported_characters(run: str, sources: Sequence[Set[str]]) -> int:
    """Count the run's characters that no source supports; a single character between supported ones is ignored."""

    def is_known(term: str) -> bool:
        return any(term in terms for terms in sources)

    supported = [False] * len(run)
    for index in range(len(run) - 1):
        if is_known(run[index : index + 2]):
            supported[index] = supported[index + 1] = True
    for word in WORD.finditer(run):
        supported[word.start() : word.end()] = [is_known(stem(word[0])[:STEM_LENGTH])] * len(word[0])
    stretches = [len(list(group)) for known, group in groupby(supported) if not known]
    return sum(length for length in stretches if length > 1)
