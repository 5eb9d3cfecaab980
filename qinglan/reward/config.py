"""Settings of the reward of a rewrite."""

from typing import Literal

from pydantic import Field

from qinglan.config import Config, Fraction, Seed
from qinglan.http.addresses import Address
from qinglan.rag.retrieval import RetrievalConfig


class Weights(Config):
    """Weights of the three comparisons with the teacher's rewrite."""

    judge: Fraction = 0.35
    """Weight of the judge's score of the rewrite, compared with its score of the teacher's rewrite."""

    retrieval: Fraction = 0.40
    """Weight of the rewrite's retrieval quality, compared with the quality of the teacher's rewrite."""

    win: Fraction = 0.25
    """Weight of a win, loss or tie against the teacher's retrieval quality; the size of the difference does not
    count."""


class Outcomes(Config):
    """Values of the win term before its weight."""

    win: float = 0.5
    """Value if the rewrite retrieves better than the teacher's rewrite."""

    lose: float = -0.3
    """Value if the rewrite retrieves worse than the teacher's rewrite."""

    tie: float = 0.0
    """Value if both rewrites retrieve equally well."""


class Penalties(Config):
    """Largest penalty of each fault under `anchored_v2`; the README says how each fault is measured."""

    needless: Fraction = 0.1
    """Penalty for rewriting a question that retrieves as well without a rewrite. It is up to twice as large if the
    rewrite retrieves worse."""

    length: Fraction = 0.2
    """Penalty for a rewrite of more than 1.5 times the length of the row's need or of the teacher's rewrite,
    whichever is longer."""

    repeats: Fraction = 0.2
    """Penalty for repeating text within the rewrite."""

    names: Fraction = 0.2
    """Penalty for words that neither the conversation nor a retrieved passage holds."""

    numbers: Fraction = 0.3
    """Penalty for numbers that the conversation does not hold."""


class StyleRewardConfig(Config):
    """Additional reward term: the probability, from the style service, that the rewrite is in the trained style."""

    url: Address
    """Base URL of the style service; requests go to POST /predict. Its host must be on the operator's allowlist."""

    weight: Fraction
    """Reward of a rewrite whose probability of the trained style is 1."""

    wanted: tuple[str, ...] = Field(min_length=1)
    """Labels of the trained style; their probabilities are added up."""


class RewardConfig(Config):
    """Settings of the reward of one rewrite."""

    mode: Literal["seed_v1", "anchored_v2"] = "anchored_v2"
    """Formula of the reward. `seed_v1` is the formula of the original plan, which can be gamed; `anchored_v2`
    prevents that."""

    weights: Weights = Weights()
    """Weights of the three comparisons with the teacher."""

    outcomes: Outcomes = Outcomes()
    """Values of the win term."""

    scale: float = Field(default=3.0, gt=0)
    """Factor by which a difference to the teacher is multiplied before tanh."""

    penalties: Penalties = Penalties()
    """Largest penalty of each fault under `anchored_v2`."""

    judge_share: Fraction = 0.3
    """Share of prompts whose rewrites are all judged. For other prompts the judge's scores are imputed, and marked as
    imputed."""

    judge_prompt: str = ""
    """Prompt of the judge: a text, or a .txt file beside the profile. Empty takes the prompt in qinglan/prompts."""

    control_pair_share: Fraction = 0.02
    """Share of the judged prompts on which the judge itself is tested, with two texts of which one is known to be
    better."""

    seed: Seed = 42
    """Seed that selects the judged prompts and the prompts of control pairs."""

    retrieval: RetrievalConfig = RetrievalConfig()
    """Retrieval settings of the run; rows must have been validated with the same settings."""

    style: StyleRewardConfig | None = None
    """Settings of the style term; without them the reward has no style term."""
