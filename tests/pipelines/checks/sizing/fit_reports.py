"""Reports of profiles, as `qinglan fit` makes them."""

from pipelines.checks.sizing.changes import Change, with_changes
from pipelines.checks.sizing.check import fit_report
from pipelines.checks.sizing.profiles import load_profile
from pipelines.checks.sizing.report import FitReport
from pipelines.lines.rewriter import RunConfig
from qinglan.sizing.cards import card_of_size


def rewriter(*changes: Change, name: str = "a100x4") -> RunConfig:
    config = load_profile(name)
    assert isinstance(config, RunConfig)
    return with_changes(config, changes, "test")


def report_of(config: RunConfig, memory: float = 80) -> FitReport:
    report = fit_report(config, "test", card_of_size(memory))
    assert report
    return report


def peaks(report: FitReport) -> dict[str, float]:
    return {f"{room.stage} {room.room}": room.needed for room in report.rooms}
