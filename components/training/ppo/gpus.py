"""verl on GPUs: as it comes, with vLLM for the rollout.

Reasons for the settings below are those of a 32B model on A100s of 80 GB. verl's defaults hold for the rest: gradient
checkpointing, without which 64 layers of activations would stay on the card; rows without padding; a vLLM that starts
with dummy weights, sleeps while the models learn, and gets the actor's weights, merged, before it answers.
"""

from components.training.ppo.config import PpoConfig
from components.training.ppo.device import ACTOR, ROLLOUT, Value
from qinglan.rewriter.engine import ENGINE_ENVIRONMENT

DRIVER = "verl.trainer.main_ppo"

ATTENTION = "sdpa"
"""torch's own attention: flash-attn has no wheel on the index and would be compiled for hours. verl joins the rows of
a batch to one line without padding; transformers reads their bounds off the positions, and no row sees another."""

STRATEGY = "fsdp2"
"""How training shards the weights; FSDP1 would train an adapter in the precision of its base."""

TRAINED = "float32"
"""Precision of trained weights, their gradients and Adam's moments; verl computes with them in bfloat16."""

ALL_AT_ONCE = False
"""AdamW takes one weight after the other. All at once, which PyTorch does by default on a GPU, a step holds another
fp32 copy of the trained weights beside them, their gradients and moments: 16 GB of each of eight cards for 32B."""


def driver(config: PpoConfig) -> str:
    return DRIVER


def modules(config: PpoConfig) -> tuple[str, ...]:
    return ()


def environment(config: PpoConfig) -> dict[str, str]:
    """The engine's own, as where it serves: it compiles no sampler at its start, and calls nobody."""
    return dict(ENGINE_ENVIRONMENT)


def overrides(config: PpoConfig) -> dict[str, Value]:
    values = {**_actor(config), **_rollout(config)}
    if config.kl and not config.lora.rank:  # with LoRA the reference is the actor without its adapter
        values["actor_rollout_ref.ref.fsdp_config.model_dtype"] = config.hardware.dtype
    return values | (_critic(config) if config.advantage == "gae" else {})


def _actor(config: PpoConfig) -> dict[str, Value]:
    hardware = config.hardware
    return {
        f"{ACTOR}.strategy": STRATEGY,
        # Under an adapter the base is not trained: in float32 it would take 131 GB, and say no more.
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
        # No sequence is longer. Without this vLLM wants room for one of the model's 40,960 tokens.
        f"{ROLLOUT}.max_model_len": config.max_prompt_tokens + config.max_new_tokens,
        # Without CUDA graphs: they would save some two seconds of a step that takes minutes (reckoned, not measured),
        # and cost memory beside the actor, a minute at each start, and torch.compile, which can fail.
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
