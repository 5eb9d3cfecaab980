"""A reward without meaning: each rollout gets the score of another one, drawn from the last hundred.

verl calls it in place of qinglan/reward/reward_function.py. A training that gains under it gains from something else.
"""

import random
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

from qinglan.reward import reward_function

SEED, TAKEN = 7, 128
_scores: deque[float] = deque(maxlen=TAKEN)
_rng = random.Random(SEED)


async def compute_scores(samples: Sequence[Mapping[str, Any]], settings: str) -> list[dict[str, float]]:
    """The real terms, so that what is measured stays true; the score alone is somebody else's."""
    scored = await reward_function.compute_scores(samples, settings)
    return [
        _shuffled(terms) if (sample["extra_info"] or {}).get("split") == "train" else terms
        for sample, terms in zip(samples, scored, strict=True)
    ]


def _shuffled(terms: dict[str, float]) -> dict[str, float]:
    _scores.append(terms["score"])
    return terms | {"score": _rng.choice(_scores)}
