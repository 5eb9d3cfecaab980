"""Training rows of a tenant's own sheet, for steps and hours of a fit."""

from pipelines.checks.sizing.report import PLANNED, Workload
from pipelines.lines.rewriter import RunConfig
from pipelines.lines.sheet import Sheet, read_sheet, with_folds


def sheet_workload(sheet: Sheet) -> Workload:
    """Rows of every training on this sheet."""
    rows, *folds = sheet.trainings
    return Workload(rows, folds=tuple(folds))


def profile_workload(config: RunConfig) -> tuple[RunConfig, Workload, str]:
    """The settings with the folds of the profile's sheet, its rows, and the origin of their number.

    Without a sheet the original plan's number of rows is used.
    """
    if config.questions is None or not config.questions.is_file():
        missing = f"{config.questions} is not here" if config.questions else "the profile names no sheet"
        return config, PLANNED, f"Rows are the original plan's, since {missing}; --rows counts for others."
    sheet = read_sheet(config)
    return with_folds(config, sheet), sheet_workload(sheet), f"Rows are those of {config.questions}."
