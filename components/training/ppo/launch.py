"""The command that trains: stock verl, told in its own words; on a CPU with its processes forked from one."""

import os
import secrets
import sys
from pathlib import Path

from components.training.ppo.config import PpoConfig
from components.training.ppo.overrides import Places, overrides
from components.training.ppo.plugin import EVERYWHERE, ON_CPU, forking
from qinglan.jobs import Command
from qinglan.jobs.processes import MARK

ROOT = Path(__file__).parents[3]


def command(config: PpoConfig, places: Places, verl_log: Path, log: Path, mark: str, temporary: Path) -> Command:
    """`python -m verl.trainer.main_ppo ...`, with what every process of it must find in its environment."""
    entry = forking.__name__ if config.hardware.device == "cpu" else forking.DRIVER
    argv = [sys.executable, "-m", entry, *overrides(config, places)]
    given = {**variables(config), **outputs(verl_log, log), MARK: mark, "TMPDIR": str(temporary)}
    if "RAY_ADDRESS" not in os.environ:
        given |= own_cluster(temporary)
    return Command(argv, given, folder=log)


def variables(config: PpoConfig) -> dict[str, str]:
    """On several nodes, the raylet of each must have been started with these too."""
    cpu = config.hardware.device == "cpu"
    given = {
        "VERL_USE_EXTERNAL_MODULES": ",".join(ON_CPU if cpu else EVERYWHERE),
        "PYTHONPATH": os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH", "")))),
        "TOKENIZERS_PARALLELISM": "false",
        "HF_HUB_OFFLINE": "1",
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_DEDUP_LOGS": "0",
        "HYDRA_FULL_ERROR": "1",
    }
    if cpu:
        # verl knows its engines by device; those for cuda are plain torch, and run on this platform as they are.
        given |= {"VERL_PLATFORM": "cpu", "VERL_ENGINE_DEVICE": "cuda"}
        given |= {"OMP_NUM_THREADS": "1", "TORCHDYNAMO_DISABLE": "1"}
        # A process that forks has no threads: this allocator would start one.
        given |= {"ARROW_DEFAULT_MEMORY_POOL": "system"}
    return given


def own_cluster(temporary: Path) -> dict[str, str]:
    """A Ray of our own: its files, and a token without which nobody on the machine can speak to it.

    Ray would make one and keep it in the home folder; a forked worker has read its settings before that.
    """
    return {
        "RAY_TMPDIR": str(temporary),
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN": secrets.token_hex(32),
        forking.SOCKET: str(temporary / "nest"),
    }


def outputs(verl_log: Path, log: Path) -> dict[str, str]:
    """Where verl's loggers write."""
    return {
        "VERL_FILE_LOGGER_PATH": str(verl_log),
        "TENSORBOARD_DIR": str(log / "tensorboard"),
        "WANDB_DIR": str(log),
    }
