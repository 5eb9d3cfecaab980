"""What the reward of a rewrite can be told."""

from typing import Literal

from pydantic import Field

from qinglan.config import Config, Fraction
from qinglan.rag.retrieval import RetrievalConfig


class Weights(Config):
    """How much each of the plan's three comparisons with the teacher counts."""

    judge: Fraction = 0.35
    """The judge's score of the rewrite against its score of the teacher's."""

    retrieval: Fraction = 0.40
    """Quality of what the rewrite finds against what the teacher's finds."""

    win: Fraction = 0.25
    """Whether it finds better, at all."""


class Outcomes(Config):
    """What the win term is before its weight."""

    win: float = 0.5
    """The rewrite finds better than the teacher's."""

    lose: float = -0.3
    """It finds worse."""

    tie: float = 0.0
    """It finds as well."""


class Penalties(Config):
    """The most that each fault can cost under anchored_v2; the README says how each is measured."""

    needless: Fraction = 0.1
    """Rewriting a question that finds as well by itself; up to twice that when the rewrite finds worse."""

    length: Fraction = 0.2
    """Longer than 1.5 times what the need takes to say."""

    repeats: Fraction = 0.2
    """Saying the same again."""

    names: Fraction = 0.2
    """Words that neither the conversation nor a retrieved passage holds."""

    numbers: Fraction = 0.3
    """Numbers that the conversation does not hold."""


class StyleRewardConfig(Config):
    """The style service as one more term."""

    url: str
    """Its base address; POST /predict is asked."""

    weight: Fraction
    """What a rewrite that is surely in the wanted style earns."""

    wanted: tuple[str, ...] = Field(min_length=1)
    """Labels whose probabilities are added up."""


class RewardConfig(Config):
    """How one rewrite is rewarded."""

    mode: Literal["seed_v1", "anchored_v2"] = "anchored_v2"
    """seed_v1 is the plan's formula to the letter, which can be gamed; anchored_v2 is ours."""

    weights: Weights = Weights()
    """Of the three comparisons."""

    outcomes: Outcomes = Outcomes()
    """Of the win term."""

    scale: float = Field(default=3.0, gt=0)
    """Differences are multiplied by it before tanh."""

    penalties: Penalties = Penalties()
    """Of anchored_v2."""

    judge_share: Fraction = 0.3
    """Prompts whose rewrites are judged, all of them; the others' judge scores are imputed and flagged."""

    canary_share: Fraction = 0.02
    """Prompts on which the judge itself is tested, with a pair of rewrites whose order is known."""

    seed: int = 42
    """Another seed, other prompts judged."""

    retrieval: RetrievalConfig = RetrievalConfig()
    """How a rewrite retrieves: the run's, which the row was validated with."""

    style: StyleRewardConfig | None = None
    """Left out by default."""
