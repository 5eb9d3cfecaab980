"""Changes of a training's settings, as a profile writes them."""

from collections.abc import Iterable
from typing import Any, NamedTuple, TypeVar

from pipelines.lines.line import LineConfig
from qinglan.config import merge_settings

Line = TypeVar("Line", bound=LineConfig)


class Change(NamedTuple):
    """Another value of one setting of a stage."""

    setting: str
    value: Any

    def __str__(self) -> str:
        return f"{self.setting}: {str(self.value).lower() if isinstance(self.value, bool) else self.value}"


def with_changes(config: Line, changes: Iterable[Change], where: str) -> Line:
    """The profile with other settings; a ConfigError if they are not allowed together."""
    values: dict[str, Any] = {}
    for change in changes:
        nested: Any = change.value
        for name in reversed(change.setting.split(".")):
            nested = {name: nested}
        values = merge_settings(values, nested)
    parts = {}
    for stage, changed in values.items():
        part = getattr(config, stage)
        parts[stage] = type(part).parse(merge_settings(part.model_dump(), changed), f"{where}: {stage}")
    return config.model_copy(update=parts)
