"""`qinglan style run`: the style line on this machine, the same graph as on the cluster."""

from pathlib import Path
from typing import Any

from pipelines.execution import (
    check_deploys,
    check_keys,
    check_machine,
    check_stage_inputs,
    prepare_run,
    run_lock,
    run_stages,
    select_stages,
)
from pipelines.rundir import RunDir
from pipelines.style import STYLE, StyleRunConfig
from qinglan.config import load_yaml
from qinglan.errors import ConfigError


def run_style(
    config: StyleRunConfig, root: Path, only: str = "", until: str = "", quiet: bool = False
) -> dict[str, Any]:
    """Execute the style line up to a stage, or one stage of it; the answer is what run.json holds."""
    run, stages = RunDir(root), select_stages(STYLE, only, until)
    if not config.labelled.exists():
        raise ConfigError(
            f"{config.labelled}: no such file. Give your labelled answers, or make a sample with "
            "`qinglan sample style --out DIR`."
        )
    check_deploys(config, stages)
    check_machine(STYLE, config, stages)
    if check_stage_inputs(STYLE, run, only):
        config = _as_prepared(config, run)
    check_keys()
    with run_lock(run):
        config = prepare_run(STYLE, config, run, stages, alone=bool(only))
        return run_stages(STYLE, run, stages, {"labelled": config.labelled.resolve()}, bool(only), quiet)


def _as_prepared(config: StyleRunConfig, run: RunDir) -> StyleRunConfig:
    """What a stage alone works on is what the folder was prepared from, whatever file is named now."""
    before = StyleRunConfig.parse(load_yaml(run.config), str(run.config))
    return config.model_copy(update={name: getattr(before, name) for name in ("labelled", "labels", "prepare")})
