"""The command that trains: stock verl, told in its own words."""

import os
import secrets
import sys
from pathlib import Path

from components.training.ppo.config import PpoConfig
from components.training.ppo.device import load_device
from components.training.ppo.overrides import TrainingPaths, overrides
from components.training.ppo.plugin import COMMON_PLUGINS
from qinglan.jobs import Command
from qinglan.jobs.processes import PROCESS_MARK_VARIABLE

ROOT = Path(__file__).parents[3]


def verl_command(config: PpoConfig, places: TrainingPaths, verl_log: Path, log: Path, token: str) -> Command:
    """`python -m verl.trainer.main_ppo ...`, with what every process of it must find in its environment.

    It is the same at each attempt, so that a job is found again.
    """
    argv = [sys.executable, "-m", load_device(config.hardware).driver(config), *overrides(config, places)]
    given = {**verl_environment(config), **outputs(verl_log, log)}
    if "RAY_ADDRESS" not in os.environ:
        given |= ray_auth_environment(token)
    return Command(argv, given, folder=log)


def verl_environment(config: PpoConfig) -> dict[str, str]:
    """On several nodes, the raylet of each is started with these too: its workers have their environment from it."""
    device = load_device(config.hardware)
    given = {
        "VERL_USE_EXTERNAL_MODULES": ",".join((*COMMON_PLUGINS, *device.modules(config))),
        "PYTHONPATH": os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH", "")))),
        "TOKENIZERS_PARALLELISM": "false",
        "HF_HUB_OFFLINE": "1",
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_DEDUP_LOGS": "0",
        "HYDRA_FULL_ERROR": "1",
    }
    return given | device.environment(config)


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
    folders = {"TMPDIR": str(temporary), "RAY_TMPDIR": str(temporary)}
    return command._replace(environment={**command.environment, **folders, PROCESS_MARK_VARIABLE: mark})


def outputs(verl_log: Path, log: Path) -> dict[str, str]:
    """Where verl's loggers write."""
    return {
        "VERL_FILE_LOGGER_PATH": str(verl_log),
        "TENSORBOARD_DIR": str(log / "tensorboard"),
        "WANDB_DIR": str(log),
    }
