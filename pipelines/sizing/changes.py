"""Changes of a training's settings, as a profile writes them."""

from collections.abc import Iterable
from typing import Any, NamedTuple

from components.training.ppo.config import PpoConfig
from components.training.sft.config import SftConfig
from pipelines.rewriter import RunConfig
from qinglan.config import merge_settings


class Change(NamedTuple):
    """Another value of one setting of sft or ppo."""

    setting: str
    value: Any

    def __str__(self) -> str:
        return f"{self.setting}: {str(self.value).lower() if isinstance(self.value, bool) else self.value}"


def with_changes(config: RunConfig, changes: Iterable[Change], where: str) -> RunConfig:
    """The profile with other settings; a ConfigError where they cannot be together."""
    values = {"sft": config.sft.model_dump(), "ppo": config.ppo.model_dump()}
    for change in changes:
        nested: Any = change.value
        for name in reversed(change.setting.split(".")):
            nested = {name: nested}
        values = merge_settings(values, nested)
    sft = SftConfig.parse(values["sft"], f"{where}: sft")
    ppo = PpoConfig.parse(values["ppo"], f"{where}: ppo")
    return config.model_copy(update={"sft": sft, "ppo": ppo})
