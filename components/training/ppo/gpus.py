"""verl on GPUs, with vLLM for the rollout.

The reasons below are for a 32B model on A100s of 80 GB. All other settings are verl's defaults. With gradient
checkpointing, the activations of 64 layers do not stay on the card. Rows have no padding. vLLM starts with dummy
weights, sleeps while the models learn, and gets the actor's merged weights before it generates. verl's settings:
https://verl.readthedocs.io/en/latest/examples/config.html
"""

from components.training.ppo.config import PpoConfig
from components.training.ppo.device import ACTOR, ROLLOUT, Value
from qinglan.rewriter.engine import ENGINE_ENVIRONMENT

DRIVER = "verl.trainer.main_ppo"

ATTENTION = "sdpa"
"""PyTorch's attention. flash-attn has no wheel on the index, and compiling it takes hours. verl joins the rows of a
batch without padding; transformers tells the rows apart by their positions, so that no row attends to another."""

STRATEGY = "fsdp2"
"""Method of sharding the weights in training. FSDP1 would train an adapter in the precision of its base."""

TRAINED = "float32"
"""Precision of trained weights, their gradients and AdamW's moments; verl computes in bfloat16."""

ALL_AT_ONCE = False
"""AdamW's `foreach`. If it were true, PyTorch's default on a GPU, a step would need another fp32 copy of the
trained weights: 16 GB on each of eight cards for 32B.
https://docs.pytorch.org/docs/stable/generated/torch.optim.AdamW.html"""


def driver(config: PpoConfig) -> str:
    return DRIVER


def modules(config: PpoConfig) -> tuple[str, ...]:
    return ()


def environment(config: PpoConfig) -> dict[str, str]:
    """Return vLLM's environment as in serving: no compilation at its start, and no requests to other hosts."""
    return dict(ENGINE_ENVIRONMENT)


def overrides(config: PpoConfig) -> dict[str, Value]:
    values = {**_actor(config), **_rollout(config)}
    # With LoRA the reference is the actor without its adapter, and has no settings.
    if config.kl and not config.lora.rank:
        values["actor_rollout_ref.ref.fsdp_config.model_dtype"] = config.hardware.dtype
    return values | (_critic(config) if config.advantage == "gae" else {})


def _actor(config: PpoConfig) -> dict[str, Value]:
    hardware = config.hardware
    return {
        f"{ACTOR}.strategy": STRATEGY,
        # The base under an adapter is not trained. In float32 it would take 131 GB.
        f"{ACTOR}.fsdp_config.model_dtype": hardware.dtype if config.lora.rank else TRAINED,
        f"{ACTOR}.fsdp_config.param_offload": hardware.offload,
        f"{ACTOR}.fsdp_config.optimizer_offload": hardware.offload,
        f"+{ACTOR}.optim.override_optimizer_config.foreach": ALL_AT_ONCE,
        "+actor_rollout_ref.model.override_config.attn_implementation": ATTENTION,
    }


def _rollout(config: PpoConfig) -> dict[str, Value]:
    hardware = config.hardware
    return {
        f"{ROLLOUT}.name": "vllm",
        f"{ROLLOUT}.dtype": hardware.dtype,
        f"{ROLLOUT}.tensor_model_parallel_size": hardware.tensor_parallel,
        f"{ROLLOUT}.gpu_memory_utilization": hardware.rollout_memory,
        # Without it vLLM reserves memory for a sequence of the model's 40,960 tokens.
        f"{ROLLOUT}.max_model_len": config.max_prompt_tokens + config.max_new_tokens,
        # No CUDA graphs: they would save about two seconds of a step that takes minutes (estimated), and cost memory
        # beside the actor, a minute at each start, and torch.compile, which can fail.
        f"{ROLLOUT}.enforce_eager": True,
    }


def _critic(config: PpoConfig) -> dict[str, Value]:
    hardware = config.hardware
    return {
        "critic.strategy": STRATEGY,
        "critic.fsdp.model_dtype": TRAINED,
        "critic.fsdp.param_offload": hardware.offload,
        "critic.fsdp.optimizer_offload": hardware.offload,
        "+critic.optim.override_optimizer_config.foreach": ALL_AT_ONCE,
        "+critic.model.override_config.attn_implementation": ATTENTION,
    }
