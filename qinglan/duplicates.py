"""Near-duplicates: MinHash finds candidates, the exact Jaccard similarity decides."""

import zlib
from collections import Counter, defaultdict
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

BANDS, ROWS = 20, 9
"""Two texts of similarity .9 share a band with a probability of .9999; of .6, of .18, and are then looked at."""

LOOKED_AT = 16
"""Candidates compared exactly: those that share most bands. A knowledge base's own phrases are in everything."""

_random = np.random.default_rng(20260101)
_FACTORS = _random.integers(1, 2**31, BANDS * ROWS, dtype=np.uint64) | np.uint64(1)
_OFFSETS = _random.integers(0, 2**31, BANDS * ROWS, dtype=np.uint64)


def shingles(text: str) -> set[str]:
    return {text[i : i + 3] for i in range(max(1, len(text) - 2))}


def similarity(one: set[str], other: set[str]) -> float:
    """Jaccard: what two sets share of what they hold together."""
    shared = len(one & other)
    return shared / (len(one) + len(other) - shared)


def bands(text: str) -> list[bytes]:
    """Twenty keys; alike texts share at least one, almost surely."""
    hashes: NDArray[np.uint64] = np.array([zlib.crc32(s.encode()) for s in shingles(text)], dtype=np.uint64)
    lowest = ((hashes[:, None] * _FACTORS + _OFFSETS) >> np.uint64(16)).astype(np.uint32).min(axis=0)
    return [bytes([n]) + lowest[n * ROWS : (n + 1) * ROWS].tobytes() for n in range(BANDS)]


class Seen:
    """Texts that may not come again."""

    def __init__(self, threshold: float) -> None:
        self.threshold = threshold
        self._texts: list[str] = []
        self._known: set[str] = set()
        self._in_band: dict[bytes, list[int]] = defaultdict(list)

    def add(self, text: str) -> None:
        if text not in self._known:
            self._known.add(text)
            for band in bands(text):
                self._in_band[band].append(len(self._texts))
            self._texts.append(text)

    def has(self, text: str) -> bool:
        """Whether a text at least as alike as the threshold was added."""
        return text in self._known or bool(self.alike(text))

    def alike(self, text: str) -> list[str]:
        """The texts added before that are."""
        mine = shingles(text)
        return [known for known in self._most_alike(text) if similarity(mine, shingles(known)) >= self.threshold]

    def _most_alike(self, text: str) -> list[str]:
        shared: Counter[int] = Counter()
        for band in bands(text):
            shared.update(self._in_band.get(band, ()))
        return [self._texts[number] for number, _ in shared.most_common(LOOKED_AT)]


def grouped(texts: Sequence[str], threshold: float) -> list[int]:
    """A number for each text, the same for texts that are alike, directly or through others between them."""
    seen, group_of, members = Seen(threshold), dict[str, int](), defaultdict[int, list[str]](list)
    for text in dict.fromkeys(texts):
        mine = len(group_of)
        group_of[text], members[mine] = mine, [text]
        for other in {group_of[known] for known in seen.alike(text)}:
            for moved in members.pop(other):
                group_of[moved] = mine
                members[mine].append(moved)
        seen.add(text)
    return [group_of[text] for text in texts]
