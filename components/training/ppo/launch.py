"""Build the command that trains: unmodified verl, with arguments and environment."""

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


def verl_command(config: PpoConfig, paths: TrainingPaths, verl_log: Path, log: Path, token: str) -> Command:
    """Return `python -m verl.trainer.main_ppo ...`, with the environment that all its processes need.

    The command is the same at each attempt, so that a running job is recognised.
    """
    argv = [sys.executable, "-m", load_device(config.hardware).driver(config), *overrides(config, paths)]
    environment = {**verl_environment(config), "VERL_FILE_LOGGER_PATH": str(verl_log)}
    if "RAY_ADDRESS" not in os.environ:
        # Ray then refuses callers without this token. Without RAY_AUTH_TOKEN it makes a token in the home folder, too
        # late for a forked worker, which has read its settings. https://docs.ray.io/en/latest/ray-security/index.html
        environment |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": token}
    return Command(argv, environment, folder=log)


def verl_environment(config: PpoConfig) -> dict[str, str]:
    """Return the environment of verl's processes. On several nodes each raylet has it, and its workers inherit it."""
    device = load_device(config.hardware)
    environment = {
        "VERL_USE_EXTERNAL_MODULES": ",".join((*COMMON_PLUGINS, *device.modules(config))),
        "PYTHONPATH": os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH", "")))),
        "TOKENIZERS_PARALLELISM": "false",
        "HF_HUB_OFFLINE": "1",
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_DEDUP_LOGS": "0",
        "HYDRA_FULL_ERROR": "1",
    }
    return environment | device.environment(config)


def ray_token(folder: Path) -> str:
    path = folder / "ray-token"
    if not path.is_file():
        path.touch(mode=0o600)
        path.write_text(secrets.token_hex(32))
    return path.read_text()


def with_local_environment(command: Command, mark: str, temporary: Path) -> Command:
    """Return the command with `mark` and `temporary` in its environment, by which its processes are identified."""
    folders = {"TMPDIR": str(temporary), "RAY_TMPDIR": str(temporary)}
    return command._replace(environment={**command.environment, **folders, PROCESS_MARK_VARIABLE: mark})
