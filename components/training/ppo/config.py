"""Settings of the PPO stage. The defaults are the plan's; those of a laptop are in its profile."""

from math import ceil
from typing import Literal, Self

from pydantic import Field, model_validator

from qinglan.config import Config, Fraction, Positive, Seed
from qinglan.live.trackers import Tracker
from qinglan.reward.config import RewardConfig


class Hardware(Config):
    """Machines of the training; these settings do not change what is learned."""

    device: Literal["cuda", "cpu"] = "cuda"
    """Device of verl: `cpu` runs the same verl on a laptop, with a plugin in place of GPUs."""

    plugin: str = ""
    """Module that replaces the GPUs if `device` is `cpu`: `standins.verl_cpu`. Images of a release do not have it."""

    nodes: Positive = 1
    """Number of machines, which are the pods of one job on a cluster: a Ray head and its workers."""

    per_node: Positive = 4
    """GPUs of each node; on a CPU, its processes."""

    threads: Positive = 1
    """Threads of each process on a CPU. Their number changes the order of sums, and so the last bits of the
    weights."""

    tensor_parallel: Positive = 4
    """GPUs that hold one copy of the model during the rollout."""

    dtype: Literal["bfloat16", "float32"] = "bfloat16"
    """Precision of weights that are not trained: the base under an adapter, the reference and the rollout. Trained
    weights are float32, and with `standins.verl_cpu` all weights."""

    offload: bool = False
    """Offload of weights and optimizer to the machine's memory while the other model uses the GPU."""

    rollout_memory: Fraction = 0.5
    """Share of a GPU's memory that the rollout may fill."""

    reward_workers: Positive = 4
    """Processes that compute rewards; on a CPU the driver computes them. The gateway's limits hold for all
    together."""


class Lora(Config):
    """LoRA adapter of the actor."""

    rank: int = Field(default=64, ge=0)
    """Rank of the adapter; 0 trains all weights."""

    alpha: Positive = 128
    """Numerator of the adapter's scale: its output is multiplied by alpha / rank."""

    targets: str = "all-linear"
    """Modules that get the adapter."""


class PpoConfig(Config):
    """Proximal policy optimisation against the teacher, by verl."""

    advantage: Literal["gae", "grpo"] = "gae"
    """Advantage estimator: `gae` learns a critic; `grpo` compares the rollouts of one prompt, at least 2
    (`rollouts`)."""

    actor_learning_rate: float = Field(default=1e-5, gt=0)
    """Learning rate of the actor; a tiny model needs fifty times the default."""

    critic_learning_rate: float = Field(default=1e-4, gt=0)
    """Learning rate of the critic; higher than the actor's, since its value head starts untrained."""

    critic_warmup: Fraction = 0.1
    """Share of the steps, in whole steps, during which the critic's learning rate rises from 0: all its weights are
    trained, and the first gradients come from an untrained value head."""

    gamma: Fraction = 0.99
    """Discount from one token to the next."""

    gae_lambda: Fraction = 0.95
    """Lambda of generalised advantage estimation: 0 uses the critic's values, 1 the rewards."""

    clip: float = Field(default=0.2, gt=0)
    """Clip range of a token's probability ratio, to 1 ± this."""

    entropy: float = Field(default=0.01, ge=0)
    """Entropy bonus added to the loss per token; 0 disables it."""

    kl: float = Field(default=0.005, ge=0)
    """Penalty in the reward, per nat of a token's KL divergence from the SFT model."""

    gradient_clip: float = Field(default=0.5, gt=0)
    """Largest gradient norm of actor and critic; longer gradients are scaled down."""

    ppo_epochs: Positive = 4
    """Passes over the samples of each step."""

    collection: Positive = 256
    """Samples per step, of `collection / rollouts` prompts."""

    batch: Positive = 64
    """Samples per update of the weights; the plan says 32 to 64."""

    accumulation: Positive = 4
    """Parts into which each GPU divides an update's samples; more parts need less memory."""

    rollouts: Positive = 1
    """Samples per prompt."""

    epochs: Positive = 10
    """Passes over the training prompts."""

    steps: int = Field(default=0, ge=0)
    """Total number of steps; 0 takes it from `epochs`."""

    validations: Positive = 10
    """Checkpoints in the whole training, evenly spread, the last one at its end. Each is tested on dev; the best one
    becomes the model, or the SFT model if that is better. A training with fewer steps has fewer."""

    patience: int = Field(default=3, ge=0)
    """Tests on dev in a row without a better score before the training stops; 0 trains to the end."""

    keep: Positive = 3
    """Newest checkpoints that are kept on disk, beside the best one."""

    temperature: float = Field(default=0.7, gt=0)
    """Sampling temperature of the rollout. Dev is decoded greedily, as in serving."""

    top_p: float = Field(default=0.9, gt=0, le=1)
    """Nucleus of the rollout: only the most likely tokens up to this total probability are sampled."""

    max_new_tokens: Positive = 150
    """Most tokens of a rewrite; a longer one is cut."""

    max_prompt_tokens: Positive = 512
    """Most tokens of a prompt, in training and serving: the oldest turns of a longer history are left out, and a
    prompt that is too long without any history is left out and counted."""

    hard_share: Fraction = 0.5
    """Share of training prompts where the teacher's rewrite does not find the gold passage first, so that the student
    can win. 0 does not change the shares."""

    dev_rows: Positive = 1000
    """Dev prompts in each test, drawn by the seed."""

    critic_model: str = ""
    """Model that the critic starts from, a smaller one with the same vocabulary: a public name, such as
    Qwen/Qwen3-1.7B, in the folder of QINGLAN_BASE_WEIGHTS, or a folder. Empty takes the SFT model. All of a critic's
    weights are trained; one of 32B needs about 512 GB with its optimizer."""

    seed: Seed = 42
    """Seed of the rows' order, of the rollout and of the first weights of critic and adapter."""

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
        """Prompts per step."""
        return self.collection // self.rollouts

    def with_steps(self, prompts: int) -> Self:
        """These settings with the number of steps over `prompts` training prompts."""
        return self.model_copy(update={"steps": self.steps or self.epochs * (prompts // self.prompts)})

    @property
    def every(self) -> int:
        """Steps between two checkpoints, once the number of steps is known."""
        return max(1, ceil(self.steps / self.validations))

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
