"""verl on GPUs: as it comes, with vLLM for the rollout."""

from components.training.ppo.config import PpoConfig
from components.training.ppo.device import ACTOR, ROLLOUT, Value

DRIVER = "verl.trainer.main_ppo"


def driver(config: PpoConfig) -> str:
    return DRIVER


def modules(config: PpoConfig) -> tuple[str, ...]:
    return ()


def environment(config: PpoConfig) -> dict[str, str]:
    return {}


def overrides(config: PpoConfig) -> dict[str, Value]:
    hardware = config.hardware
    values: dict[str, Value] = {
        f"{ACTOR}.strategy": hardware.strategy,
        f"{ROLLOUT}.name": "vllm",
        f"{ROLLOUT}.tensor_model_parallel_size": hardware.tensor_parallel,
        f"{ROLLOUT}.gpu_memory_utilization": hardware.rollout_memory,
        f"{ROLLOUT}.load_format": "safetensors",
        f"{ACTOR}.fsdp_config.param_offload": hardware.offload,
        f"{ACTOR}.fsdp_config.optimizer_offload": hardware.offload,
    }
    if config.advantage == "gae":
        values["critic.strategy"] = hardware.strategy
        values |= {f"critic.fsdp.{name}_offload": hardware.offload for name in ("param", "optimizer")}
    return values
