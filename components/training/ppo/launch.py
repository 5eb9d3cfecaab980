"""The command that trains: stock verl, told in its own words; on a CPU with its processes forked from one."""

import json
import os
import secrets
import sys
from pathlib import Path

from components.training.ppo.config import PpoConfig
from components.training.ppo.overrides import OBJECT_STORE, RAY_CPUS, TrainingPaths, overrides
from components.training.ppo.plugin import COMMON_PLUGINS, CPU_PLUGINS, SINGLE_MACHINE_CPU_PLUGINS, fork_server
from qinglan.jobs import Command
from qinglan.jobs.processes import PROCESS_MARK_VARIABLE

ROOT = Path(__file__).parents[3]


def verl_command(config: PpoConfig, places: TrainingPaths, verl_log: Path, log: Path, token: str) -> Command:
    """`python -m verl.trainer.main_ppo ...`, with what every process of it must find in its environment.

    It is the same at each attempt, so that a job is found again.
    """
    entry = fork_server.__name__ if uses_forkserver(config) else fork_server.DRIVER
    argv = [sys.executable, "-m", entry, *overrides(config, places)]
    given = {**verl_environment(config), **outputs(verl_log, log)}
    if "RAY_ADDRESS" not in os.environ:
        given |= ray_auth_environment(token)
    return Command(argv, given, folder=log)


def uses_forkserver(config: PpoConfig) -> bool:
    """All of verl's processes are forks of one: on one machine, where no GPU minds."""
    return config.hardware.device == "cpu" and config.hardware.nodes == 1


def verl_environment(config: PpoConfig) -> dict[str, str]:
    """On several nodes, the raylet of each is started with these too: its workers have their environment from it."""
    cpu = config.hardware.device == "cpu"
    on_cpu = SINGLE_MACHINE_CPU_PLUGINS if uses_forkserver(config) else CPU_PLUGINS
    given = {
        "VERL_USE_EXTERNAL_MODULES": ",".join(on_cpu if cpu else COMMON_PLUGINS),
        "PYTHONPATH": os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH", "")))),
        "TOKENIZERS_PARALLELISM": "false",
        "HF_HUB_OFFLINE": "1",
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_DEDUP_LOGS": "0",
        "HYDRA_FULL_ERROR": "1",
    }
    if cpu:
        given |= {"VERL_PLATFORM": "cpu", "VERL_ENGINE_DEVICE": "cpu"}
        # Ray starts its workers at nice 15: on a machine with other work they would hardly be given a processor.
        given |= {"RAY_worker_niceness": "0"}
        given |= {"OMP_NUM_THREADS": "1", "TORCHDYNAMO_DISABLE": "1"}
        # A process that forks has no threads: this allocator would start one.
        given |= {"ARROW_DEFAULT_MEMORY_POOL": "system"}
        # Else Ray starts workers before anyone asks for them, and none of ours is of their kind.
        given |= {"RAY_enable_worker_prestart": "0", "RAY_prestart_worker_first_driver": "0"}
    if cpu and config.hardware.nodes > 1:
        given["RAY_OVERRIDE_RESOURCES"] = json.dumps({"CPU": RAY_CPUS, "object_store_memory": OBJECT_STORE})
    return given


def ray_auth_environment(token: str) -> dict[str, str]:
    """A Ray that speaks to nobody without this token.

    Ray would make one and keep it in the home folder; a forked worker has read its settings before that.
    """
    return {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": token}


def ray_token(folder: Path) -> str:
    """The training's own, the same at each attempt."""
    path = folder / "ray-token"
    if not path.is_file():
        path.touch(mode=0o600)
        path.write_text(secrets.token_hex(32))
    return path.read_text()


def with_local_environment(command: Command, mark: str, temporary: Path) -> Command:
    """What a process here needs beside: the mark and the folder by which all that it starts is found."""
    folders = {
        "TMPDIR": str(temporary),
        "RAY_TMPDIR": str(temporary),
        fork_server.SOCKET_VARIABLE: str(temporary / "nest"),
    }
    return command._replace(environment={**command.environment, **folders, PROCESS_MARK_VARIABLE: mark})


def outputs(verl_log: Path, log: Path) -> dict[str, str]:
    """Where verl's loggers write."""
    return {
        "VERL_FILE_LOGGER_PATH": str(verl_log),
        "TENSORBOARD_DIR": str(log / "tensorboard"),
        "WANDB_DIR": str(log),
    }
