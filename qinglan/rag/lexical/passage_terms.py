"""Extracts the terms of many passages at once with numpy: the same terms as search_terms, many times faster.

batch = extract_terms([Passage(id="1", title="虾青素 用量", content="每日一粒。")])
batch.bodies[0]                     # '虾青 青素 用量 每日 日一 一粒 '
DocumentFrequencies().add(batch)    # count how many passages hold each term, a batch at a time

Each term is one integer. A pair holds the code points of its two characters, 21 bits each. A lone character has 0 as
its second. A word holds 48 bits of its digest, and a higher bit that sets it apart from pairs. With a million words,
about one knowledge base in 500 has two words with the same integer.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache, lru_cache
from hashlib import blake2b
from itertools import chain
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from qinglan.rag.contract import Passage
from qinglan.text.text import LETTER, words

TermCodes = NDArray[np.uint64]
Weights = NDArray[np.float64]
Counts = NDArray[np.int64] | NDArray[np.uint32]

CODE_POINTS = 0x110000
CODE_BITS = np.uint64(21)
WORD_BYTES = 6
TERM_BITS = np.uint64(8 * WORD_BYTES + 1)
KNOWN_WORDS = 1 << 16
ONE_BIT = np.uint64(1)
SPACE = ord(" ")

PASSAGES_AT_ONCE = 4096
LETTERS_AT_ONCE = 1 << 19
"""Limits of a batch in passages and in characters. It ends at the limit that it reaches first, so that long passages
need no more memory than short ones."""

MERGED_AT = 1 << 20


class BatchTerms(NamedTuple):
    """Search terms of a batch of passages."""

    bodies: list[str]
    """Each passage's terms, each followed by a space, for a search engine that splits at spaces."""

    codes: TermCodes
    """Each passage's distinct terms, ascending, one passage after another."""

    in_title: NDArray[np.bool_]
    """For each term in `codes`: True if the title of its passage holds the term."""

    counts: NDArray[np.int64]
    """Number of distinct terms of each passage."""


def passage_batches(passages: Iterable[Passage]) -> Iterator[list[Passage]]:
    batch: list[Passage] = []
    letters = 0
    for passage in passages:
        batch.append(passage)
        letters += len(passage.title) + len(passage.content)
        if len(batch) == PASSAGES_AT_ONCE or letters >= LETTERS_AT_ONCE:
            yield batch
            batch, letters = [], 0
    if batch:
        yield batch


def extract_terms(batch: Sequence[Passage]) -> BatchTerms:
    """Extract each passage's terms as `search_terms` does from its searched text: title, line break, content."""
    texts = [text.lower() for passage in batch for text in (passage.title, passage.content)]
    # UTF-32 gives each character four bytes, so positions in the array are positions in the text.
    points = np.frombuffer("\n".join([*texts, ""]).encode("utf-32-le", "surrogatepass"), np.uint32)
    lengths = np.fromiter(map(len, texts), np.int64, len(texts)) + 1
    at, paired = _starts(points)
    first, second = points[at], np.where(paired, points[at + 1], 0)
    segment = np.repeat(np.arange(len(texts), dtype=np.uint64), lengths)[at]
    texts_words = [list(words(text)) for text in texts]
    word_segment = np.repeat(np.arange(len(texts), dtype=np.uint64), list(map(len, texts_words)))
    word_codes = np.fromiter(map(_word_code, chain.from_iterable(texts_words)), np.uint64, len(word_segment))
    pair_codes = first.astype(np.uint64) << CODE_BITS | second.astype(np.uint64)
    codes, in_title, counts = _distinct(
        np.concatenate([pair_codes, word_codes]), np.concatenate([segment, word_segment]), len(batch)
    )
    bodies = _bodies(first, second, segment, len(batch))
    for number, body in enumerate(bodies):
        bodies[number] = " ".join(
            [body.rstrip(), *texts_words[2 * number], *texts_words[2 * number + 1], ""]
        ).lstrip()
    return BatchTerms(bodies, codes, in_title, counts)


@lru_cache(KNOWN_WORDS)
def _word_code(word: str) -> int:
    digest = blake2b(word.encode(), digest_size=WORD_BYTES).digest()
    return 1 << (8 * WORD_BYTES) | int.from_bytes(digest)


class DocumentFrequencies:
    """Counts the passages that contain each term. Memory grows with the vocabulary, not with the passages."""

    def __init__(self) -> None:
        self._codes: TermCodes = np.empty(0, np.uint64)
        self._counts: NDArray[np.int64] = np.empty(0, np.int64)
        self._waiting: list[tuple[TermCodes, NDArray[np.int64]]] = []

    def add(self, cut: BatchTerms) -> None:
        codes, counts = np.unique(cut.codes, return_counts=True)
        self._waiting.append((codes, counts))
        if sum(len(codes) for codes, _ in self._waiting) > max(MERGED_AT, len(self._codes)):
            self._merge()

    def weigher(self, weight: Callable[[int], float]) -> "PassageWeigher":
        """Return a PassageWeigher, which scores passages by the weights of their terms.

        `weight` turns a term's document frequency into its weight.
        """
        self._merge()
        distinct, positions = np.unique(self._counts, return_inverse=True)
        return PassageWeigher(
            self._codes, np.array([weight(int(count)) for count in distinct], np.float64)[positions]
        )

    def _merge(self) -> None:
        codes = np.concatenate([self._codes, *(codes for codes, _ in self._waiting)])
        counts = np.concatenate([self._counts, *(counts for _, counts in self._waiting)])
        self._waiting.clear()
        order = np.argsort(codes, kind="stable")
        self._codes, starts = np.unique(codes[order], return_index=True)
        self._counts = np.add.reduceat(counts[order], starts) if len(starts) else counts


class PassageWeigher:
    """Function object that sums the weights of each passage's terms."""

    def __init__(self, codes: TermCodes, weights: Weights) -> None:
        self._codes, self._weights = codes, weights

    def __call__(self, codes: TermCodes, in_title: NDArray[np.bool_], counts: Counts) -> Weights:
        """Return a row for each passage: the summed weights of all its terms, and of its title's terms.

        The arguments are fields of BatchTerms.
        """
        weights = self._weights[np.searchsorted(self._codes, codes)]
        passage = np.repeat(np.arange(len(counts)), counts)
        whole = np.bincount(passage, weights, len(counts))
        title = np.bincount(passage, np.where(in_title, weights, 0.0), len(counts))
        return np.stack([whole, title], axis=1)


@cache
def _matching(pattern: str) -> NDArray[np.bool_]:
    """Return a mask of all code points; True for those that match a pattern of Python's `re`."""
    everything = np.arange(CODE_POINTS, dtype=np.uint32).tobytes().decode("utf-32-le", "surrogatepass")
    mask = np.zeros(CODE_POINTS, np.bool_)
    for run in re.finditer(f"(?:{pattern})+", everything):
        mask[run.start() : run.end()] = True
    return mask


def _starts(points: NDArray[np.uint32]) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Return the positions where a pair or a lone character begins, and a mask of pairs. The last point is a line
    break."""
    character, letter = _matching(r"\w")[points], _matching(f"[{LETTER}]")[points]
    joined = np.append(character[:-1] & character[1:], False)
    lone = character & ~joined & ~np.append(False, joined[:-1])
    paired = joined & ~np.append(letter[:-1] & letter[1:], False)
    at = np.flatnonzero(paired | lone)
    return at, paired[at]


def _distinct(
    codes: TermCodes, segment: TermCodes, passages: int
) -> tuple[TermCodes, NDArray[np.bool_], NDArray[np.int64]]:
    """Return each passage's distinct terms, a mask of the terms that its title contains, and the number of terms per
    passage.

    Passage, term and a bit (0 for the title, 1 for the content) are packed in one number. After sorting, a term of
    the title comes before the same term of the content, and only the first is used.
    """
    # From the highest bit: passage, term (49 bits), and one bit for title or content. A segment's number is twice its
    # passage's, plus 1 for the content.
    packed = np.sort((segment >> ONE_BIT << TERM_BITS | codes) << ONE_BIT | segment & ONE_BIT)
    is_new = np.append(True, packed[1:] >> ONE_BIT != packed[:-1] >> ONE_BIT)[: len(packed)]
    packed = packed[is_new]
    term = (packed >> ONE_BIT) & ((ONE_BIT << TERM_BITS) - ONE_BIT)
    counts = np.bincount((packed >> ONE_BIT >> TERM_BITS).astype(np.int64), minlength=passages)
    return term, packed & ONE_BIT == 0, counts


def _bodies(first: NDArray[np.uint32], second: NDArray[np.uint32], segment: TermCodes, passages: int) -> list[str]:
    spelled = np.full((len(first), 3), SPACE, np.uint32)
    spelled[:, 0] = first
    spelled[:, 1] = np.where(second, second, SPACE)
    text = spelled.tobytes().decode("utf-32-le")
    ends = 3 * np.cumsum(np.bincount((segment >> ONE_BIT).astype(np.int64), minlength=passages))
    starts = np.append(0, ends[:-1])
    return [text[start:end] for start, end in zip(starts.tolist(), ends.tolist(), strict=True)]
