"""Read the config.yaml in a run's folder: the line of the run, and the settings of a rewriter's run."""

from pipelines.execute.rundir import RunDir
from pipelines.lines.all_lines import LINES
from pipelines.lines.line import Line
from pipelines.lines.rewriter import REWRITER, RunConfig
from qinglan.config import load_yaml
from qinglan.errors import ConfigError


def check_line(line: Line, run: RunDir) -> None:
    """Raise a ConfigError if the folder holds a run of another line, by the inputs that its config.yaml names."""
    settings = load_yaml(run.config) if run.config.is_file() else {}
    other = next((known for known in LINES.values() if known.inputs.keys() <= settings.keys()), line)
    if other is not line:
        raise ConfigError(
            f"{run.root}: holds a run of the {other.name} line, and this command is one of the {line.name} line. "
            "Nothing was changed. Give another folder."
        )


def read_rewriter_config(run: RunDir) -> RunConfig:
    """Read the configuration of a rewriter run; ConfigError for any other folder."""
    if not run.config.is_file() and run.has_begun():
        raise ConfigError(
            f"{run.root}: this run's {run.config.name} is missing. Put it back; or call the `qinglan run` that began "
            f"it again with --out {run.root}, which writes it, and what was paid is not paid again."
        )
    if not run.config.is_file():
        raise ConfigError(f"{run.root}: no run there. Give the folder that `qinglan run` wrote.")
    check_line(REWRITER, run)
    return RunConfig.parse(load_yaml(run.config), str(run.config))
