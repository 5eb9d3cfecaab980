"""What the ppo stage can be told. The defaults are the plan's numbers; what a laptop needs stands in its profile."""

from typing import Literal, Self

from pydantic import Field, model_validator

from qinglan.config import Config, Fraction, Positive
from qinglan.reward.config import RewardConfig

Rate = float
"""A learning rate."""


class Hardware(Config):
    """Where it runs; nothing here changes what is learned."""

    device: Literal["cuda", "cpu"] = "cuda"
    """`cpu` runs the same verl on a laptop, with a plugin that plays its GPUs."""

    plugin: str = ""
    """Module that plays the GPUs where `device` is `cpu`: `standins.verl_cpu`. Images of a release hold none."""

    nodes: Positive = 1
    """More than one are the pods of one job on a cluster, a Ray head and its workers."""

    per_node: Positive = 4
    """GPUs, or on a CPU processes, of one node."""

    tensor_parallel: Positive = 4
    """GPUs that hold one copy of the model during the rollout."""

    strategy: Literal["fsdp", "fsdp2"] = "fsdp2"
    """How training shards the weights; on a CPU it is fsdp."""

    offload: bool = False
    """Weights and optimizer wait in the machine's memory while the other model has the GPU."""

    rollout_memory: Fraction = 0.5
    """Share of a GPU's memory that the rollout may fill."""

    reward_workers: Positive = 4
    """Processes that ask for rewards; on a CPU the driver asks. The gateway's limits hold over all of them."""


class Lora(Config):
    """Which weights are trained."""

    rank: int = Field(default=64, ge=0)
    """0 trains all weights."""

    alpha: Positive = 128
    """The adapter counts alpha / rank."""

    targets: str = "all-linear"
    """Modules that get one."""


class PpoConfig(Config):
    """Proximal policy optimisation against the teacher, by verl."""

    advantage: Literal["gae", "grpo"] = "gae"
    """`gae` learns a critic; `grpo` compares the rollouts of one prompt instead and needs `rollouts` of 2 or more."""

    actor_learning_rate: Rate = Field(default=1e-5, gt=0)
    """The plan's; a tiny model needs fifty times as much."""

    critic_learning_rate: Rate = Field(default=1e-4, gt=0)
    """The critic starts from nothing and may run ahead."""

    gamma: Fraction = 0.99
    """Discount from one token to the next."""

    gae_lambda: Fraction = 0.95
    """Between the critic's word (0) and the reward that came (1)."""

    clip: float = Field(default=0.2, gt=0)
    """A token's probability ratio counts within 1 ± this."""

    entropy: float = Field(default=0.01, ge=0)
    """What undecidedness earns."""

    kl: float = Field(default=0.005, ge=0)
    """What each nat of distance from the SFT model costs, token by token, within the reward."""

    gradient_clip: float = Field(default=0.5, gt=0)
    """Longest gradient, of actor and critic."""

    ppo_epochs: Positive = 4
    """Passes over each collection."""

    collection: Positive = 256
    """Samples a step, of `collection / rollouts` prompts."""

    batch: Positive = 64
    """Samples an update of the weights; the plan's 32 to 64."""

    accumulation: Positive = 4
    """Parts that an update's samples are computed in, on each GPU: more parts, less memory."""

    rollouts: Positive = 1
    """Samples a prompt."""

    epochs: Positive = 10
    """Passes over the training prompts."""

    steps: int = Field(default=0, ge=0)
    """Steps in all; 0 leaves it to `epochs`."""

    every: Positive = 20
    """Steps between two checkpoints, each tested on dev. The best of them becomes the model."""

    keep: Positive = 3
    """Checkpoints on disk at a time, beside the best."""

    temperature: float = Field(default=0.7, gt=0)
    """Of the rollout; dev is answered greedily, as serving answers."""

    top_p: float = Field(default=0.9, gt=0, le=1)
    """Of the rollout."""

    max_new_tokens: Positive = 150
    """A rewrite that is longer is cut."""

    max_prompt_tokens: Positive = 512
    """Prompts that are longer are left out, and counted."""

    hard_share: Fraction = 0.5
    """Share of training prompts on which the teacher's rewrite does not find the gold passage first: there is
    something to win. 0 leaves the rows as they are."""

    dev_rows: Positive = 1000
    """Dev prompts of a test, drawn by the seed."""

    critic_model: str = ""
    """A folder: the critic starts from this model, of the same tokenizer; empty takes the SFT model itself. A 32B
    critic needs about 512 GB with its optimizer."""

    seed: int = 42
    """Of the rows' order, of the rollout and of the critic's first weights."""

    loggers: tuple[Literal["tensorboard", "wandb"], ...] = ("tensorboard",)
    """Besides metrics.jsonl. W&B takes its key and mode from WANDB_API_KEY and WANDB_MODE."""

    lora: Lora = Lora()
    """Adapters on the actor."""

    hardware: Hardware = Hardware()
    """GPUs, or a laptop."""

    reward: RewardConfig = RewardConfig()
    """How a rewrite is rewarded."""

    @property
    def prompts(self) -> int:
        """Prompts a step."""
        return self.collection // self.rollouts

    @property
    def devices(self) -> int:
        return self.hardware.nodes * self.hardware.per_node

    @property
    def micro_batch(self) -> int:
        """Samples that one device computes at once."""
        return self.batch // (self.accumulation * self.devices)

    @model_validator(mode="after")
    def _fit_together(self) -> Self:
        if self.advantage == "grpo" and self.rollouts < 2:
            raise ValueError("grpo compares the rollouts of one prompt: set rollouts to 2 or more")
        if self.collection % self.batch or self.collection % self.rollouts or self.batch % self.rollouts:
            raise ValueError(
                f"collection {self.collection} must be a multiple of batch {self.batch}, "
                f"and both of rollouts {self.rollouts}"
            )
        if self.batch % (self.accumulation * self.devices):
            raise ValueError(
                f"batch {self.batch} must be a multiple of accumulation {self.accumulation} x {self.devices} devices"
            )
        if self.hardware.device == "cuda" and self.devices % self.hardware.tensor_parallel:
            raise ValueError(
                f"{self.devices} GPUs cannot be shared by tensor_parallel {self.hardware.tensor_parallel}"
            )
        return self
