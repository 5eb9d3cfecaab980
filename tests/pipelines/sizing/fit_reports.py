"""Reports of profiles, as `qinglan fit` makes them."""

from pipelines.rewriter import RunConfig
from pipelines.sizing.changes import Change, with_changes
from pipelines.sizing.check import fit_report
from pipelines.sizing.profiles import load_profile
from pipelines.sizing.report import FitReport
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
