"""Settings of the PPO stage. The defaults are for the planned training; a laptop's settings are in its profile."""

from math import ceil
from typing import Literal, Self

from pydantic import Field, model_validator

from qinglan.config import Config, Fraction, Positive, Seed
from qinglan.live.trackers import Tracker
from qinglan.reward.config import RewardConfig


class Hardware(Config):
    """Machines, processes and precision of the training."""

    device: Literal["cuda", "cpu"] = "cuda"
    """Device on which verl trains. `cpu` runs the same verl on a laptop, with a plugin that replaces GPUs."""

    plugin: str = ""
    """Name of the module that replaces GPUs if `device` is `cpu`: `standins.verl_cpu`. Release images lack it."""

    nodes: Positive = 1
    """Number of machines. On a cluster they are the pods of one job: a Ray head and its workers."""

    per_node: Positive = 4
    """Number of GPUs per node; on a CPU, number of processes per node."""

    threads: Positive = 1
    """Number of threads per process on a CPU. It changes the order of sums, and so the last bits of the weights."""

    tensor_parallel: Positive = 4
    """Number of GPUs that hold one copy of the model during the rollout."""

    dtype: Literal["bfloat16", "float32"] = "bfloat16"
    """Precision of weights that are not trained: the base under an adapter, the reference and the rollout. Trained
    weights are float32. With `standins.verl_cpu` all weights are float32."""

    offload: bool = False
    """Offload of a model's weights and optimizer to the machine's memory while the other model uses the GPU."""

    rollout_memory: Fraction = 0.5
    """Share of a GPU's memory that the rollout may fill."""

    reward_workers: Positive = 4
    """Number of processes that compute rewards, on GPUs only. The gateway's limits hold for all of them together."""


class Lora(Config):
    """LoRA adapter of the actor."""

    rank: int = Field(default=64, ge=0)
    """Rank of the adapter; 0 trains all weights instead."""

    alpha: Positive = 128
    """Numerator of the adapter's scale: its output is multiplied by alpha / rank."""

    targets: str = "all-linear"
    """Names of the modules that get the adapter."""


class PpoConfig(Config):
    """Training of the student against its teacher by proximal policy optimisation (PPO), with verl."""

    advantage: Literal["gae", "grpo"] = "gae"
    """Advantage estimator: `gae` learns a critic; `grpo` compares the rollouts of one prompt, and needs at least 2 of
    them (`rollouts`)."""

    actor_learning_rate: float = Field(default=1e-5, gt=0)
    """Learning rate of the actor. A tiny model needs fifty times the default."""

    critic_learning_rate: float = Field(default=1e-4, gt=0)
    """Learning rate of the critic. It is higher than the actor's, since the critic's value head starts untrained."""

    critic_warmup: Fraction = 0.1
    """Share of steps during which the critic's learning rate rises from 0, rounded to whole steps. The rise is slow
    because all its weights are trained, and the first gradients come from an untrained value head."""

    gamma: Fraction = 0.99
    """Discount of rewards from one token to the next."""

    gae_lambda: Fraction = 0.95
    """Lambda of generalised advantage estimation: 0 uses the critic's values, 1 the rewards."""

    clip: float = Field(default=0.2, gt=0)
    """Clip range of a token's probability ratio: the ratio is clipped to 1 ± this value."""

    entropy: float = Field(default=0.01, ge=0)
    """Entropy bonus added to the loss per token; 0 disables it."""

    kl: float = Field(default=0.005, ge=0)
    """Penalty in the reward per nat of KL divergence from the SFT model, for each token."""

    gradient_clip: float = Field(default=0.5, gt=0)
    """Largest gradient norm of actor and critic. Larger gradients are scaled down to it."""

    ppo_epochs: Positive = 4
    """Number of passes over the samples of each step."""

    collection: Positive = 256
    """Number of samples per step. They come from `collection / rollouts` prompts."""

    batch: Positive = 64
    """Number of samples per update of the weights, planned as 32 to 64."""

    accumulation: Positive = 4
    """Number of parts into which each GPU divides an update's samples. More parts need less memory."""

    rollouts: Positive = 1
    """Number of samples per prompt."""

    epochs: Positive = 10
    """Number of passes over the training prompts."""

    steps: int = Field(default=0, ge=0)
    """Total number of steps; if 0, it follows from `epochs`."""

    validations: Positive = 10
    """Number of checkpoints, evenly spread over the training, the last one at its end. Each is tested on dev.
    The best one becomes the model, or the SFT model if that is better. A training with fewer steps has fewer
    checkpoints."""

    patience: int = Field(default=3, ge=0)
    """Number of consecutive tests on dev without a better score that stops the training; 0 trains to the end."""

    keep: Positive = 3
    """Number of newest checkpoints that are kept on disk, in addition to the best one."""

    temperature: float = Field(default=0.7, gt=0)
    """Sampling temperature of the rollout. Dev is decoded greedily, as in serving."""

    top_p: float = Field(default=0.9, gt=0, le=1)
    """Total probability of the most likely tokens, among which the rollout samples (nucleus sampling)."""

    max_new_tokens: Positive = 150
    """Largest number of tokens in a rewrite. A longer rewrite is cut."""

    max_prompt_tokens: Positive = 512
    """Largest number of tokens in a prompt, in training and serving. Of a longer history, the oldest turns are left
    out. A prompt that is too long without any history is left out and counted."""

    hard_share: Fraction = 0.5
    """Share of training prompts for which the teacher's rewrite does not find the gold passage first, so that the
    student can do better. 0 does not change the shares."""

    dev_rows: Positive = 1000
    """Number of dev prompts in each test, drawn by the seed."""

    critic_model: str = ""
    """Model from which the critic starts; empty takes the SFT model. It may be a smaller model with the same
    vocabulary: a folder, or a public name in the folder of QINGLAN_BASE_WEIGHTS, such as Qwen/Qwen3-1.7B. All weights
    of a critic are trained; with 32B and its optimizer it needs about 512 GB."""

    seed: Seed = 42
    """Seed of the rows' order, of the rollout, and of the initial weights of critic and adapter."""

    trackers: tuple[Tracker, ...] = ("tensorboard",)
    """Trackers that get the training's figures, beside metrics.jsonl; a run sets them for all its trainings."""

    lora: Lora = Lora()
    """LoRA adapter on the actor."""

    hardware: Hardware = Hardware()
    """Machines and processes of the training."""

    reward: RewardConfig = RewardConfig()
    """Reward of a rewrite."""

    @property
    def prompts(self) -> int:
        return self.collection // self.rollouts

    def with_steps(self, prompts: int) -> Self:
        return self.model_copy(update={"steps": self.steps or self.epochs * (prompts // self.prompts)})

    @property
    def every(self) -> int:
        """Return the number of steps between two checkpoints, once the total number of steps is known."""
        return max(1, ceil(self.steps / self.validations))

    @property
    def devices(self) -> int:
        return self.hardware.nodes * self.hardware.per_node

    @property
    def micro_batch(self) -> int:
        return self.batch // (self.accumulation * self.devices)

    @model_validator(mode="after")
    def _fit_together(self) -> Self:
        if self.advantage == "grpo" and self.rollouts < 2:
            raise ValueError("grpo compares the rollouts of one prompt: set rollouts to 2 or more")
        if self.advantage == "grpo" and self.critic_model:
            raise ValueError("grpo has no critic: leave critic_model out")
        if self.collection % self.batch or self.collection % self.rollouts or self.batch % self.rollouts:
            raise ValueError(
                f"collection {self.collection} must be a multiple of batch {self.batch}, "
                f"and both of rollouts {self.rollouts}"
            )
        if self.batch % (self.accumulation * self.devices):
            devices = "cards" if self.hardware.device == "cuda" else "processes"
            counts = [str(n) for n in range(1, self.batch + 1) if self.batch % (self.accumulation * n) == 0]
            other = f", or take {', '.join(counts)} of them" if counts else ""
            raise ValueError(
                f"batch {self.batch} cannot be divided by {self.devices} {devices} x accumulation "
                f"{self.accumulation}: set accumulation or batch{other}"
            )
        if self.hardware.device == "cuda" and self.devices % self.hardware.tensor_parallel:
            raise ValueError(
                f"{self.devices} cards cannot be divided into groups of hardware.tensor_parallel "
                f"{self.hardware.tensor_parallel}: set it to a divisor of {self.devices}"
            )
        return self
