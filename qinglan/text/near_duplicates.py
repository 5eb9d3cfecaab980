"""Near-duplicates: texts that share most of their three-character pieces, every one of them found.

index = NearDuplicateIndex(["…", …], threshold=0.8)
index.alike("…")            # those at least as alike as the threshold

Two alike texts share so many pieces that some are among the rarest of both: only texts that share rare ones are
compared. What is left out cannot be alike, so nothing hangs on luck.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from qinglan.text.text import normalise

EXTRA_RARE_PIECES = 12
"""Rarest pieces compared beyond the fewest that prefix filtering needs: alike texts share as many of them. It changes
the time, never the result."""

SIMPLIFIED_FILE = Path(__file__).with_name("simplified_characters.txt")

ROUNDING = 1e-9
"""A share of exactly the threshold counts."""


def question_key(question: str, history: str) -> str:
    """Two rows with this key are one task: an elliptic question means nothing without its history.

    The history sets them apart; width, case, punctuation, spaces and traditional characters do not.
    """
    return f"{comparable(question)}|{comparable(history)}"


def comparable(text: str) -> str:
    """The text as near-duplicates are compared: normalised, in simplified characters."""
    return normalise(text).translate(_simplified_characters())


@cache
def _simplified_characters() -> dict[int, str]:
    lines = SIMPLIFIED_FILE.read_text(encoding="utf-8").splitlines()
    pairs = "".join(line for line in lines if not line.startswith("#"))
    return {ord(traditional): simplified for traditional, simplified in zip(pairs[::2], pairs[1::2], strict=True)}


def shingles(text: str) -> set[str]:
    return {text[i : i + 3] for i in range(max(1, len(text) - 2))}


def similarity(left: set[str], other: set[str]) -> float:
    """Jaccard: what two sets share of what they hold together."""
    shared = len(left & other)
    return shared / (len(left) + len(other) - shared)


class NearDuplicateIndex:
    """Distinct texts that others are held against."""

    def __init__(self, texts: Iterable[str], threshold: float) -> None:
        self.threshold = threshold
        self.texts = list(dict.fromkeys(texts))
        self._rank = rank_by_rarity(self.texts)
        self._pieces = [np.array(sorted(self._rank[piece] for piece in shingles(text))) for text in self.texts]
        self._sizes = np.array([len(pieces) for pieces in self._pieces])
        self._holding = self._held_by_rare()

    def alike(self, text: str) -> list[str]:
        """The known texts that are at least as alike as the threshold, itself among them where it is known."""
        pieces = shingles(text)
        ranks = sorted(self._rank[piece] for piece in pieces if piece in self._rank)
        if len(ranks) < self._least(len(pieces)):
            return []
        rank_set = set(ranks)
        return [
            self.texts[at] for at in self._candidates(ranks, len(pieces)) if self._is_alike(rank_set, len(pieces), at)
        ]

    def _is_alike(self, ranks: set[int], size: int, at: int) -> bool:
        other_ranks = self._pieces[at].tolist()
        shared = len(ranks.intersection(other_ranks))
        return shared >= self.threshold * (size + len(other_ranks) - shared) - ROUNDING

    def _candidates(self, ranks: Sequence[int], size: int) -> list[int]:
        """Texts of like size that share enough of the rarest pieces; a piece that no text has counts as the
        rarest."""
        rarest = ranks[: max(0, self._wide(size) - (size - len(ranks)))]
        if not (held := [self._holding[piece] for piece in rarest if piece in self._holding]):
            return []
        shared = np.bincount(np.concatenate(held))
        candidates = np.flatnonzero(shared >= min(EXTRA_RARE_PIECES, self._least(size)))
        sizes = self._sizes[candidates]
        smallest, largest = self.threshold * size - ROUNDING, size / self.threshold + ROUNDING
        return [int(at) for at in candidates[(smallest <= sizes) & (sizes <= largest)]]

    def _least(self, size: int) -> int:
        """The number of its pieces that a text of this size shares at least with a text that is alike."""
        return max(1, math.ceil(self.threshold * size - ROUNDING))

    def _wide(self, size: int) -> int:
        """The number of its rarest pieces to compare (prefix filtering, as in PPJoin).

        Alike texts share `_least` pieces. At most `size - _least` of those of one text are not shared, so among its
        rarest `size - _least + EXTRA_RARE_PIECES` at least EXTRA_RARE_PIECES are, or all of `_least`.
        """
        return size - self._least(size) + EXTRA_RARE_PIECES

    def _held_by_rare(self) -> dict[int, NDArray[np.intp]]:
        held: dict[int, list[int]] = defaultdict(list)
        for at, pieces in enumerate(self._pieces):
            for piece in pieces[: self._wide(len(pieces))].tolist():
                held[piece].append(at)
        return {piece: np.array(texts) for piece, texts in held.items()}


def rank_by_rarity(texts: Iterable[str]) -> dict[str, int]:
    """A number for each piece, the smallest for the rarest."""
    counts = Counter(piece for text in texts for piece in shingles(text))
    return {piece: n for n, piece in enumerate(sorted(counts, key=lambda piece: (counts[piece], piece)))}


def group_near_duplicates(texts: Sequence[str], threshold: float) -> list[int]:
    """A number for each text, the same for texts that are alike, directly or through others between them."""
    index = NearDuplicateIndex(texts, threshold)
    group_of, members = dict[str, int](), defaultdict[int, list[str]](list)
    for text in index.texts:
        number = len(group_of)
        group_of[text], members[number] = number, [text]
        for other in {group_of[text_number] for text_number in index.alike(text) if text_number in group_of} - {
            number
        }:
            for moved in members.pop(other):
                group_of[moved] = number
                members[number].append(moved)
    return [group_of[text] for text in texts]
