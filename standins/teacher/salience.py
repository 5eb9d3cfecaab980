"""Find the subject of a text: the most specific phrase from a knowledge base's headings that occurs in the text.

phrases = PhraseIndex(["虾青素软胶囊 每日服用频次", "虾青素软胶囊 退换货政策", ...])
phrases.best("用户正在了解虾青素软胶囊，已解答退换货政策")     # WeightedPhrase("虾青素软胶囊", ...)
"""

import math
from collections import Counter, defaultdict
from collections.abc import Sequence
from functools import cached_property
from statistics import median
from typing import NamedTuple

from qinglan.text.text import RUN

SHORTEST, LONGEST = 2, 12
RECENCY = 0.2
"""Extra weight of a phrase at a text's end, compared with its beginning, since the last subject is usually meant."""

HISTORY_CHARACTERS = 2_000
"""Number of characters that are read at the end of a text."""

SAMPLED = 200
"""Number of headings from which the typical weight is estimated."""


class WeightedPhrase(NamedTuple):
    phrase: str
    weight: float
    """Specificity of the phrase."""


class PhraseIndex:
    """Index of all phrases in a knowledge base's headings, with the number of headings that contain each."""

    def __init__(self, headings: Sequence[str]) -> None:
        self._headings = headings
        self._counts: Counter[str] = Counter()
        for heading in headings:
            self._counts.update(_pieces(heading.lower()))

    @cached_property
    def typical(self) -> float:
        """Median weight of the subjects of the knowledge base's headings."""
        sample = self._headings[:: max(1, len(self._headings) // SAMPLED)]
        return median([phrase.weight for heading in sample if (phrase := self.best(heading))] or [0.0])

    def weight(self, phrase: str) -> float:
        # Inverse document frequency, less for short phrases: two characters meet by chance more often than many.
        count = self._counts.get(phrase.lower(), 0)
        return math.log(len(self._headings) / count) * (1 - 1 / len(phrase)) if count else 0.0

    def find(self, text: str, headings: int = 2) -> list[tuple[int, str]]:
        """Find the longest phrases that occur in at least `headings` headings, with positions, left to right."""
        lowered, at, phrases = text.lower(), 0, []
        while at < len(text):
            size = next(
                (k for k in range(LONGEST, SHORTEST - 1, -1)
                 if at + k <= len(text) and self._counts.get(lowered[at : at + k], 0) >= headings),
                0,
            )  # fmt: skip
            if size:
                phrases.append((at, text[at : at + size]))
            at += size or 1
        return phrases

    def names(self, text: str) -> list[WeightedPhrase]:
        """Find the phrases in the text, sorted by the sum of weight x recency over their occurrences, descending."""
        text = text[-HISTORY_CHARACTERS:]
        phrases = self.find(text) or [(at, p) for at, p in self.find(text, headings=1) if len(p) > SHORTEST]
        score: dict[str, float] = defaultdict(float)
        for at, phrase in phrases:
            score[phrase] += self.weight(phrase) * (1 + RECENCY * at / len(text))
        return [
            WeightedPhrase(phrase, self.weight(phrase))
            for phrase in sorted(score, key=score.__getitem__, reverse=True)
        ]

    def best(self, text: str) -> WeightedPhrase | None:
        return next(iter(self.names(text)), None)


def _pieces(heading: str) -> set[str]:
    return {
        run[at : at + size]
        for run in RUN.findall(heading)
        for size in range(SHORTEST, LONGEST + 1)
        for at in range(len(run) - size + 1)
    }
