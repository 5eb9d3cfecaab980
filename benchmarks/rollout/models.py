"""The models that a simulated rollout meets: what "bad" means here, in points, and under which traffic.

Written before the controller, so that neither was fitted to the other. A rate is the share of requests that fail a
check; `quality` is the share of untied shadow pairs that the canary loses, a half where both are as good.
"""

from typing import NamedTuple

import numpy as np

CHECKS = ("errors", "slow", "fallbacks", "zero_hits", "costly", "quality")
STABLE = {"errors": (0.001, 0.01), "slow": (0.02, 0.06), "fallbacks": (0.01, 0.03), "zero_hits": (0.05, 0.12)}
"""Between which rates the stable model lies."""

STABLE_COSTLY = (0.02, 0.08)
"""And of its questions, how many cost more tokens than the policy says."""

GOOD_SHARE = 0.4
GOOD = ("equal", "better")
BETTER = {"errors": 0.5, "slow": 0.8, "fallbacks": 0.7, "zero_hits": 0.7, "costly": 0.8, "quality": 0.8}
"""Factor of a better model's rates."""

WORSE = {
    "failing": ("errors", 0.04, 0.12),
    "rare_errors": ("errors", 0.02, 0.03),
    "slow": ("slow", 0.12, 0.30),
    "evasive": ("fallbacks", 0.08, 0.20),
    "empty_handed": ("zero_hits", 0.08, 0.20),
    "lower_quality": ("quality", 0.18, 0.35),
    "late": ("errors", 0.04, 0.12),
}
"""Which check a bad model fails, and by how much more of its requests than the stable one, from and to."""

CRASHING = "crashing"
"""Never ready: its pods start, and die."""

COSTLY, MORE_COSTLY = "costly", (0.12, 0.30)
"""Writes long, and is as good as the stable one in all else: how many more of its questions cost too much."""

FIRST = (*WORSE, CRASHING)
BAD = (*FIRST, COSTLY)
LATE_SHARES = (20, 50)
LATE_SECONDS = 180.0
"""A late model is like the stable one until its share is one of these, and at most so long after."""

REQUESTS = (10.0, 60.0)
"""Requests a second of both models together, drawn evenly in the logarithm."""

WAVE = 0.3
"""How much the traffic swells and ebbs within an hour."""

PAIRS = (0.5, 2.0)
TIES = 0.3
"""Shadow pairs judged in a second, and the share of them that say nothing."""

STORM_SHARE, STORM_SECONDS, STORM = 0.3, (60.0, 180.0), {"errors": (0.10, 0.30), "slow": (0.20, 0.40)}
"""How often something that both models stand on fails for a while, and how much then fails with either of them."""


class Onset(NamedTuple):
    """When a late model turns bad: so many seconds after its share reached `percent`."""

    percent: int
    seconds: float


class Rates(NamedTuple):
    stable: dict[str, float]
    canary: dict[str, float]


class Traffic(NamedTuple):
    requests: float
    pairs: float
    phase: float
    storm: tuple[float, float] | None
    storm_rates: dict[str, float]


class Model(NamedTuple):
    """Kind of a schedule's canary, beside its stable model."""

    kind: str
    rates: Rates
    onset: Onset | None

    @property
    def good(self) -> bool:
        return self.kind in GOOD

    @property
    def crashes(self) -> bool:
        return self.kind == CRASHING


def draw_model(random: np.random.Generator) -> Model:
    stable = {check: float(random.uniform(*span)) for check, span in STABLE.items()} | {"quality": 0.5}
    kind = str(random.choice(GOOD if random.random() < GOOD_SHARE else FIRST))
    onset = Onset(int(random.choice(LATE_SHARES)), float(random.uniform(0, LATE_SECONDS))) if kind == "late" else None
    return Model(kind, Rates(stable, _canary(kind, stable, random)), onset)


def _canary(kind: str, stable: dict[str, float], random: np.random.Generator) -> dict[str, float]:
    if kind == "better":
        return {check: rate * BETTER[check] for check, rate in stable.items()}
    if kind not in WORSE:
        return stable
    check, least, most = WORSE[kind]
    return stable | {check: stable[check] + float(random.uniform(least, most))}


def with_cost(model: Model, dice: np.random.Generator) -> Model:
    """With what its questions cost; a bad model in so many is bad in this instead.

    Cost was added after the controller was written, and by dice of its own: what else a seed plays has stayed.
    """
    rate = float(dice.uniform(*STABLE_COSTLY))
    stable = model.rates.stable | {COSTLY: rate}
    if not model.good and dice.random() < 1 / len(BAD):
        return Model(COSTLY, Rates(stable, stable | {COSTLY: rate + float(dice.uniform(*MORE_COSTLY))}), None)
    same = rate * (BETTER[COSTLY] if model.kind == "better" else 1.0)
    return model._replace(rates=Rates(stable, model.rates.canary | {COSTLY: same}))


def draw_traffic(random: np.random.Generator, horizon: float) -> Traffic:
    requests = float(np.exp(random.uniform(*np.log(REQUESTS))))
    storm = None
    if random.random() < STORM_SHARE:
        start = float(random.uniform(0, horizon))
        storm = (start, start + float(random.uniform(*STORM_SECONDS)))
    raised = {check: float(random.uniform(*span)) for check, span in STORM.items()}
    return Traffic(requests, float(random.uniform(*PAIRS)), float(random.uniform(0, 2 * np.pi)), storm, raised)
