"""Settings with which the ppo stage starts verl on a CPU, if `hardware.plugin` is standins.verl_cpu."""

import json

from components.training.ppo.config import PpoConfig
from components.training.ppo.device import ACTOR, ROLLOUT, Value
from components.training.ppo.gpus import DRIVER

HERE = "standins.verl_cpu"
FORK_SERVER = f"{HERE}.fork_server"
MODULES = tuple(f"{HERE}.{name}" for name in ("cpu_platform", "patches", "rollout_patches"))
PARALLEL_CRITIC = f"{HERE}.parallel_critic"
STEP_ROLLOUTS = f"{HERE}.step_rollouts.StepRollouts"

CPU_ROLLOUT = "hf_generate"
"""Name under which the CPU rollout is registered with verl."""

PACKED_ATTENTION = "rows_of_a_line"
"""Name under which packed_engine.py registers its attention."""

RAY_CPUS = 12
"""Number of CPUs that Ray assumes. Each of verl's actors gets one, although they take turns."""

OBJECT_STORE = 300_000_000
"""Size of Ray's object store in bytes."""


def driver(config: PpoConfig) -> str:
    """Return the module to start: the fork server on one machine, verl's own driver on several machines."""
    return FORK_SERVER if config.hardware.nodes == 1 else DRIVER


def modules(config: PpoConfig) -> tuple[str, ...]:
    """Return the modules that verl imports. On several nodes the critic is not parallel, to avoid deadlocks."""
    return (*MODULES, PARALLEL_CRITIC) if config.hardware.nodes == 1 else MODULES


def environment(config: PpoConfig) -> dict[str, str]:
    variables = {"VERL_PLATFORM": "cpu", "VERL_ENGINE_DEVICE": "cpu"}
    # Ray starts its workers at nice 15: on a machine with other work they would hardly get a processor.
    # https://github.com/ray-project/ray/blob/master/src/ray/common/ray_config_def.h (worker_niceness)
    variables |= {"RAY_worker_niceness": "0"}
    threads = str(config.hardware.threads)
    variables |= {"OMP_NUM_THREADS": threads, "OMP_WAIT_POLICY": "passive", "TORCHDYNAMO_DISABLE": "1"}
    # verl's transfer queue takes 8 threads, and warns at each of its messages where there are fewer cores.
    variables |= {"TQ_NUM_THREADS": threads}
    # A process that forks must have no threads, and Arrow's default allocator starts one.
    # https://arrow.apache.org/docs/cpp/env_vars.html
    variables |= {"ARROW_DEFAULT_MEMORY_POOL": "system"}
    # Otherwise Ray starts workers in advance, of a kind that verl does not use.
    variables |= {"RAY_enable_worker_prestart": "0", "RAY_prestart_worker_first_driver": "0"}
    if config.hardware.nodes > 1:
        variables["RAY_OVERRIDE_RESOURCES"] = json.dumps({"CPU": RAY_CPUS, "object_store_memory": OBJECT_STORE})
    return variables


def ray_overrides(config: PpoConfig, slots: int) -> dict[str, Value]:
    """Return Ray's resources on one machine. On several, each `ray start` reads them from RAY_OVERRIDE_RESOURCES."""
    values: dict[str, Value] = {"transfer_queue.backend.SimpleStorage.num_data_storage_units": 1}
    if config.hardware.nodes == 1:
        values |= {
            "ray_kwargs.ray_init.num_cpus": RAY_CPUS,
            "+ray_kwargs.ray_init.num_gpus": slots,
            "+ray_kwargs.ray_init.object_store_memory": OBJECT_STORE,
        }
    return values


def single_precision(engine: str) -> dict[str, Value]:
    """Return the settings for an engine that computes in float32 and compiles no kernels."""
    precision: dict[str, Value] = {
        f"+{engine}.mixed_precision.{kind}_dtype": "fp32" for kind in ("param", "reduce", "buffer")
    }
    return {f"{engine}.use_torch_compile": False, **precision}


def overrides(config: PpoConfig) -> dict[str, Value]:
    """Return verl's settings for single precision without GPU kernels, and for this package's rollout and engines."""
    values: dict[str, Value] = {
        f"{ACTOR}.strategy": "fsdp",
        f"{ROLLOUT}.name": CPU_ROLLOUT,
        f"{ROLLOUT}.tensor_model_parallel_size": 1,
        f"+{ROLLOUT}.agent.agent_loop_manager_class": STEP_ROLLOUTS,
        # The rollout computes as the actor does, so its log-probabilities are the old policy's. This saves a pass.
        f"{ROLLOUT}.calculate_log_probs": True,
        "algorithm.rollout_correction.bypass_mode": True,
        # StepRollouts computes the rewards of a step, so verl needs no reward workers.
        "reward.num_workers": 0,
        f"{ROLLOUT}.free_cache_engine": False,
    }
    # The critic has processes of its own (parallel_critic.py).
    values |= ray_overrides(config, config.hardware.per_node * (2 if config.advantage == "gae" else 1))
    engines = {f"{ACTOR}.fsdp_config", "actor_rollout_ref.ref.fsdp_config"}
    models = {"actor_rollout_ref.model"}
    if config.advantage == "gae":
        engines.add("critic.fsdp")
        models.add("critic.model")
    for engine in sorted(engines):
        values |= single_precision(engine)
    for model in sorted(models):
        values[f"+{model}.override_config.attn_implementation"] = PACKED_ATTENTION
        values[f"{model}.use_remove_padding"] = False
        values[f"{model}.enable_gradient_checkpointing"] = False
    return values
