"""The time that a question waits for its rewrite, from the deployed rewriter's recent times.

It is observed here, not read from the release: the evaluation measures one question at a time, on its own machine and
engine, and a user waits for this network, this engine and this load.
"""

import math
from collections import deque
from collections.abc import Sequence

WINDOW = 200
"""Newest requests, of which the percentile is taken."""

ENOUGH = 20
"""Requests before the percentile counts; until then a question waits as long as the setting allows."""

SHARE, FACTOR = 0.95, 2.0
LEAST_SECONDS = 1.0
"""Shortest wait. It is also the limit of a rollout's check `slow`: with a shorter wait, a canary that is slower than
the stable model, yet within that limit, would lose its answers."""


def patience_seconds(seconds: Sequence[float], most: float) -> float:
    """Twice the 95th percentile, at least a second, and never more than `most`."""
    if len(seconds) < ENOUGH:
        return most
    percentile = sorted(seconds)[math.ceil(SHARE * len(seconds)) - 1]
    return min(most, max(LEAST_SECONDS, FACTOR * percentile))


class Patience:
    """The wait for one rewriter, adjusted after each answer and each timeout.

    A timeout counts as a request that took the whole wait. If more than one in twenty times out, the percentile is
    the wait itself, so the next wait is twice as long: a rewriter that became slower is soon waited for again.
    """

    def __init__(self, most: float) -> None:
        self._most = most
        self._taken = deque[float](maxlen=WINDOW)
        self.seconds = most

    def observe(self, seconds: float) -> None:
        self._taken.append(seconds)
        self.seconds = patience_seconds(self._taken, self._most)
