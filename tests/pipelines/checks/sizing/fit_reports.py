"""Reports of profiles, as `qinglan fit` makes them."""

from collections.abc import Sequence
from typing import Any, NamedTuple, TypeVar

from pipelines.checks.sizing.profiles import load_profile
from pipelines.checks.sizing.report import FitReport, fit_report
from pipelines.lines.line import LineConfig
from pipelines.lines.rewriter import RunConfig
from qinglan.config import merge_settings
from qinglan.sizing.cards import card_of_size

Line = TypeVar("Line", bound=LineConfig)


class Change(NamedTuple):
    """Another value of a stage's setting, such as `ppo.lora.rank`."""

    setting: str
    value: Any


def with_changes(config: Line, changes: Sequence[Change]) -> Line:
    parts: dict[str, Any] = {}
    for setting, value in changes:
        stage, *names = setting.split(".")
        for name in reversed(names):
            value = {name: value}
        part = parts.get(stage) or getattr(config, stage)
        parts[stage] = type(part).parse(merge_settings(part.model_dump(), value), stage)
    return config.model_copy(update=parts)


def rewriter(*changes: Change, name: str = "a100x4") -> RunConfig:
    config = load_profile(name)
    assert isinstance(config, RunConfig)
    return with_changes(config, changes)


def report_of(config: RunConfig, memory: float = 80) -> FitReport:
    report = fit_report(config, "test", card_of_size(memory))
    assert report
    return report


def peaks(report: FitReport) -> dict[str, float]:
    return {f"{room.stage} {room.room}": room.needed for room in report.rooms}
