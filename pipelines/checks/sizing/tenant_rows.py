"""Training rows of a tenant's own sheet, for steps and hours of a fit."""

from pipelines.checks.sizing.report import PLANNED, Workload
from pipelines.lines.rewriter import RunConfig
from pipelines.lines.sheet import Sheet, read_sheet, with_folds


def sheet_workload(sheet: Sheet) -> Workload:
    """Rows of every training on this sheet."""
    rows, *folds = sheet.trainings
    return Workload(rows, folds=tuple(folds))


def profile_workload(config: RunConfig) -> tuple[RunConfig, Workload, str]:
    """The settings, with the folds of the profile's sheet, its rows, and where the number of rows comes from.

    The original plan's rows stand in for a sheet that the profile does not name or that is not here.
    """
    if config.questions is None or not config.questions.is_file():
        missing = f"{config.questions} is not here" if config.questions else "the profile names no sheet"
        return config, PLANNED, f"Rows are the original plan's, since {missing}; --rows counts for others."
    sheet = read_sheet(config)
    return with_folds(config, sheet), sheet_workload(sheet), f"Rows are those of {config.questions}."
