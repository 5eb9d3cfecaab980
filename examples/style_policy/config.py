"""Settings of the style policy. The defaults are for a model of half a billion parameters on one GPU."""

from typing import Literal, Self

from pydantic import Field, model_validator

from qinglan.config import Config, Fraction, Positive, Seed


class StartConfig(Config):
    """The short SFT that makes a responder of the base, in all manners alike: what style is then measured against."""

    epochs: float = Field(default=2.0, gt=0)
    """Passes over the training rows."""

    batch: Positive = 16
    """Rows a step."""

    learning_rate: float = Field(default=2e-5, gt=0)
    """At its height; it falls to zero along a line."""


class LimitsConfig(Config):
    """When a training is ended, for what held-out answers show."""

    gap: float = Field(default=0.25, gt=0)
    """How far the reward may run ahead of the independent judge, both counted from the start."""

    fall: float = Field(default=0.05, ge=0)
    """How far the judge may fall below the start while the reward rises."""

    distinct: Fraction = 0.5
    """Least share of pairs of answers to one question that differ by more than numbers."""

    variety: Fraction = 0.25
    """Least variety, as a share of the start's: how many of all runs of four characters differ from each other."""

    repeats: Fraction = 0.3
    """Largest share of an answer's character triples that it has said before."""


class StylePolicyConfig(Config):
    """A responder, the manner it is to learn, and TRL's GRPO."""

    device: Literal["cuda", "cpu"] = "cuda"
    """Device to run on; with `cuda` and no GPU the training fails instead of running slowly."""

    rewarded: tuple[str, ...] = Field(default=("诚实",), min_length=1)
    """Labels of the style model; the reward is the sum of their probabilities."""

    start: StartConfig = StartConfig()
    """Before GRPO."""

    steps: Positive = 300
    """Steps of GRPO, unless an alarm ends it earlier."""

    batch: Positive = 64
    """Answers a step."""

    accumulation: Positive = 8
    """Parts that a step's answers are learned from one after the other, for the sake of memory."""

    num_generations: int = Field(default=8, ge=2)
    """Answers to one question, each measured against the mean of all."""

    learning_rate: float = Field(default=1e-6, gt=0)
    """Constant, after the first steps."""

    beta: float = Field(default=0.02, ge=0)
    """Weight of the divergence from the start in the loss."""

    temperature: float = Field(default=1.0, gt=0)
    """Sampling temperature of answers, in training and at every evaluation of held-out questions."""

    max_new_tokens: Positive = 200
    """Longest answer; what is longer is cut off there."""

    watch_every: Positive = 25
    """Steps between snapshots at held-out questions; a checkpoint is saved at each."""

    held_out: Positive = 256
    """Most questions of a look; as many others are kept for the final figures."""

    answers: int = Field(default=2, ge=2)
    """To each held-out question: two show whether there is still more than one."""

    limits: LimitsConfig = LimitsConfig()
    """Limits that end the training early."""

    seed: Seed = 42
    """Seed of order and sampling."""

    @model_validator(mode="after")
    def _possible(self) -> Self:
        if self.batch % self.num_generations:
            raise ValueError("batch must be a multiple of num_generations: a question's answers stay in one step")
        if self.batch % self.accumulation:
            raise ValueError("batch must be a multiple of accumulation: its parts are of one size")
        if len(set(self.rewarded)) != len(self.rewarded):
            raise ValueError("rewarded names a label twice")
        return self
