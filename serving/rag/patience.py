"""Longest wait of a question for its rewrite, computed from the deployed rewriter's recent response times.

The RAG service measures these times itself. The evaluation's times do not apply, because the evaluation sends one
question at a time, on another machine and engine.
"""

import math
from collections import deque
from collections.abc import Sequence

WINDOW = 200
"""Number of newest requests over which the percentile is computed."""

ENOUGH = 20
"""Lowest number of requests for a percentile. With fewer, a question waits as long as the setting allows."""

SHARE, FACTOR = 0.95, 2.0
LEAST_SECONDS = 1.0
"""Shortest wait in seconds, equal to the limit of a rollout's check `slow`. With a shorter wait, answers of a canary
within that limit would be lost."""


def patience_seconds(seconds: Sequence[float], most: float) -> float:
    """Compute the wait in seconds: twice the 95th percentile of `seconds`, between LEAST_SECONDS and `most`."""
    if len(seconds) < ENOUGH:
        return most
    percentile = sorted(seconds)[math.ceil(SHARE * len(seconds)) - 1]
    return min(most, max(LEAST_SECONDS, FACTOR * percentile))


class Patience:
    """Longest wait for one rewriter, adjusted after each answer and each timeout.

    A timeout counts as a request that took the whole wait. If more than 5 % of the requests time out, the percentile
    is the wait itself, so the next wait is twice as long. So the wait soon fits a rewriter that became slower.
    """

    def __init__(self, most: float) -> None:
        self._most = most
        self._taken = deque[float](maxlen=WINDOW)
        self.seconds = most

    def observe(self, seconds: float) -> None:
        self._taken.append(seconds)
        self.seconds = patience_seconds(self._taken, self._most)
