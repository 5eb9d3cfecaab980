"""Load the profile that `qinglan fit` examines, and count its training rows."""

from collections.abc import Mapping
from typing import Any

from components.training.ppo.config import PpoConfig
from components.training.sft.config import SftConfig
from pipelines.checks.sizing.report import PLANNED, Workload, sheet_workload
from pipelines.graph.compiler import GOLDEN_TENANT
from pipelines.lines.config import STYLES, TRAINING, load_config, load_style_config, tenant_folders
from pipelines.lines.overrides import NO_OVERRIDES, PAID_PROFILE
from pipelines.lines.rewriter import RunConfig
from pipelines.lines.sheet import read_sheet, with_folds
from pipelines.lines.style import StyleRunConfig
from qinglan.config import merge_settings
from qinglan.errors import ConfigError

NO_FILE = "labelled answers"
"""Placeholder for the path of the labelled answers, which are not read."""


def load_profile(
    name: str, profile: str | None = None, gpus: int | None = None, overrides: Mapping[str, Any] = NO_OVERRIDES
) -> RunConfig | StyleRunConfig:
    """Load a training profile, a tenant's own profile, or a profile of the style line."""
    shipped = is_shipped(name)
    if profile and (shipped or name.startswith("style/")):
        raise ConfigError(f"--profile {profile}: {name} is a profile itself. Leave --profile out, or name a tenant.")
    if name.startswith("style/"):
        if gpus:
            raise ConfigError(f"--gpus {gpus}: the style line trains on one card. Leave --gpus out.")
        return load_style_config(name.removeprefix("style/"), **{**overrides, "labelled": NO_FILE})
    if shipped:
        config = load_config(GOLDEN_TENANT, PAID_PROFILE, **{**overrides, "training": name})
    elif tenant_folders(name):
        config = load_config(name, profile or PAID_PROFILE, **overrides)
    else:
        trainings = ", ".join(sorted(path.stem for path in TRAINING.glob("*.yaml")))
        styles = ", ".join(sorted(f"style/{path.stem}" for path in STYLES.glob("*.yaml")))
        raise ConfigError(f"No profile {name!r}. There are: {trainings}; {styles}; or a tenant with --profile.")
    return with_gpus(config, gpus) if gpus else config


def profile_workload(config: RunConfig) -> tuple[RunConfig, Workload, str]:
    """Return the settings with the folds of the profile's sheet, its number of rows, and a sentence on its origin.

    Without a sheet the original plan's number of rows is used.
    """
    if config.questions is None or not config.questions.is_file():
        missing = f"{config.questions} is not here" if config.questions else "the profile names no sheet"
        return config, PLANNED, f"Rows are the original plan's, since {missing}; --rows counts for others."
    sheet = read_sheet(config)
    return with_folds(config, sheet), sheet_workload(sheet), f"Rows are those of {config.questions}."


def is_shipped(name: str) -> bool:
    return (TRAINING / f"{name}.yaml").is_file()


def with_gpus(config: RunConfig, gpus: int) -> RunConfig:
    sft = SftConfig.parse({**config.sft.model_dump(), "gpus": gpus}, f"--gpus {gpus}: sft")
    hardware = {"per_node": gpus, "tensor_parallel": min(config.ppo.hardware.tensor_parallel, gpus)}
    ppo = PpoConfig.parse(merge_settings(config.ppo.model_dump(), {"hardware": hardware}), f"--gpus {gpus}: ppo")
    return config.model_copy(update={"sft": sft, "ppo": ppo})
