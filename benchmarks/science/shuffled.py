"""A reward without meaning: each rollout gets the score of another one, drawn from the last hundred.

verl calls it in place of qinglan/reward/entry.py. A training that gains under it gains from something else.
"""

import random
from collections import deque
from typing import Any

from qinglan.reward import entry

SEED, KEPT = 7, 128
_scores: deque[float] = deque(maxlen=KEPT)
_rng = random.Random(SEED)


async def compute_score(*given: Any, **named: Any) -> dict[str, float]:
    """The real terms, so that what is measured stays true; the score alone is somebody else's."""
    terms = await entry.compute_score(*given, **named)
    if (named.get("extra_info") or {}).get("split") != "train":
        return terms
    _scores.append(terms["score"])
    return terms | {"score": _rng.choice(_scores)}
