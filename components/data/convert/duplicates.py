"""Near-duplicates across splits: MinHash finds candidates, the exact Jaccard similarity decides."""

import zlib
from collections import defaultdict

import numpy as np
from numpy.typing import NDArray

from qinglan.rows import Question
from qinglan.text import normalise

BANDS, ROWS = 16, 4
"""Two texts of similarity .9 share a band with a probability of 1 - 1e-7; of .5, two in three, then checked."""

_random = np.random.default_rng(20260101)
_FACTORS = _random.integers(1, 2**31, BANDS * ROWS, dtype=np.uint64) | np.uint64(1)
_OFFSETS = _random.integers(0, 2**31, BANDS * ROWS, dtype=np.uint64)


def asked(row: Question) -> str:
    """What makes two rows the same to a model: elliptic questions mean nothing without their history."""
    return f"{normalise(row.question)}|{normalise(row.history_summary)}"


def shingles(text: str) -> set[str]:
    return {text[i : i + 3] for i in range(max(1, len(text) - 2))}


def similarity(one: str, other: str) -> float:
    a, b = shingles(one), shingles(other)
    return len(a & b) / len(a | b)


def bands(text: str) -> list[bytes]:
    """Sixteen keys; alike texts share at least one, almost surely."""
    hashes: NDArray[np.uint64] = np.array([zlib.crc32(s.encode()) for s in shingles(text)], dtype=np.uint64)
    lowest = ((hashes[:, None] * _FACTORS + _OFFSETS) >> np.uint64(16)).astype(np.uint32).min(axis=0)
    return [bytes([n]) + lowest[n * ROWS : (n + 1) * ROWS].tobytes() for n in range(BANDS)]


class Seen:
    """Texts that may not come again."""

    def __init__(self, threshold: float) -> None:
        self.threshold = threshold
        self._texts: dict[bytes, list[str]] = defaultdict(list)
        self._known: set[str] = set()

    def add(self, text: str) -> None:
        if text not in self._known:
            self._known.add(text)
            for band in bands(text):
                self._texts[band].append(text)

    def has(self, text: str) -> bool:
        """Whether a text at least as alike as the threshold was added."""
        if text in self._known:
            return True
        candidates = {known for band in bands(text) for known in self._texts.get(band, ())}
        return any(similarity(text, known) >= self.threshold for known in candidates)
