"""Read the config.yaml in a run's folder: the line of the run, and the settings of a rewriter's run."""

from pipelines.execute.local_execution import last_line
from pipelines.execute.rundir import RunDir
from pipelines.lines.all_lines import LINES
from pipelines.lines.line import Line
from pipelines.lines.rewriter import REWRITER, RunConfig
from qinglan.config import load_yaml
from qinglan.errors import ConfigError


def _other_line(line: Line, run: RunDir) -> Line | None:
    """The line of the folder's run, if it is not `line`; else None. It is the line whose inputs config.yaml names or,
    if that file was removed, the line whose stages ran last."""
    if run.config.is_file():
        settings = load_yaml(run.config)
        recorded = next((known for known in LINES.values() if known.inputs.keys() <= settings.keys()), None)
    else:
        recorded = LINES.get(last_line(run))
    return None if recorded is line else recorded


def refuse_other_line(line: Line, run: RunDir) -> None:
    """Raise a ConfigError if the folder holds a run of another line, whose configuration would be overwritten."""
    if other := _other_line(line, run):
        raise ConfigError(
            f"{run.root}: holds a run of the {other.name} line, and this would be one of the {line.name} line. "
            "Nothing was changed. Give --out another folder."
        )


def check_line(line: Line, run: RunDir) -> None:
    """Raise a ConfigError if the folder holds a run of another line than the command reads."""
    if other := _other_line(line, run):
        raise ConfigError(
            f"{run.root}: this is a run of the {other.name} line; this command reads runs of the {line.name} "
            "line. Give the folder of such a run."
        )


def read_rewriter_config(run: RunDir) -> RunConfig:
    """The configuration of a run of the rewriter's line; ConfigError for any other folder."""
    if not run.config.is_file() and run.has_begun():
        raise ConfigError(
            f"{run.root}: this run's {run.config.name} is missing. Put it back; or call the `qinglan run` that began "
            f"it again with --out {run.root}, which writes it, and what was paid is not paid again."
        )
    if not run.config.is_file():
        raise ConfigError(f"{run.root}: no run there. Give the folder that `qinglan run` wrote.")
    check_line(REWRITER, run)
    return RunConfig.parse(load_yaml(run.config), str(run.config))
