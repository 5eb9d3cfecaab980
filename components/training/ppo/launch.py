"""The command that trains: stock verl, told in its own words."""

import os
import sys
from pathlib import Path

from components.training.ppo.config import PpoConfig
from components.training.ppo.overrides import Places, overrides
from components.training.ppo.plugin import EVERYWHERE, ON_CPU
from qinglan.jobs import Command

ROOT = Path(__file__).parents[3]


def command(config: PpoConfig, places: Places, verl_log: Path, log: Path, marks: dict[str, str]) -> Command:
    """`python -m verl.trainer.main_ppo ...`, with what every process of it must find in its environment."""
    argv = [sys.executable, "-m", "verl.trainer.main_ppo", *overrides(config, places)]
    return Command(argv, {**variables(config), **outputs(verl_log, log), **marks}, folder=log)


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
    return given


def outputs(verl_log: Path, log: Path) -> dict[str, str]:
    """Where verl's loggers write."""
    return {
        "VERL_FILE_LOGGER_PATH": str(verl_log),
        "TENSORBOARD_DIR": str(log / "tensorboard"),
        "WANDB_DIR": str(log),
    }
