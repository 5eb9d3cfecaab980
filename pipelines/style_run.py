"""`qinglan style run`: the style line on this machine, the same graph as on the cluster."""

import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pipelines.config import dump_config
from pipelines.execution import (
    check_deploys,
    check_keys,
    execute,
    gate_verdict,
    link_files,
    prepare_folders,
    run_lock,
    select_stages,
    with_store,
)
from pipelines.local_execution import LocalJob, write_job
from pipelines.rundir import ARTIFACT_FILES, RunDir, write_json
from pipelines.stage_lines import STYLE
from pipelines.style_config import StyleRunConfig
from qinglan.config import load_yaml
from qinglan.errors import ConfigError
from qinglan.gpus import need_gpus
from qinglan.lineage.code import code_version

TRAININGS = ("style", "distil")


def run_style(
    config: StyleRunConfig, root: Path, only: str = "", until: str = STYLE.last, quiet: bool = False
) -> dict[str, Any]:
    """Execute the style line up to a stage, or one stage of it; the answer is what run.json holds."""
    run, stages = RunDir(root), select_stages(STYLE, only, until)
    if not config.labelled.exists():
        raise ConfigError(
            f"{config.labelled}: no such file. Give your labelled answers, or make a sample with "
            "`qinglan sample style --out DIR`."
        )
    check_deploys(config, stages)
    for stage in TRAININGS:
        if stage in stages and getattr(config, stage).device == "cuda":
            need_gpus(stage, 1)
    for name in STYLE.thread[only] if only else ():
        if name not in STYLE.given and not (run.files / ARTIFACT_FILES[name]).exists():
            raise ConfigError(
                f"--only {only}: {run.files / ARTIFACT_FILES[name]} is not there. Run the stages before it first."
            )
    if only and "labelled" not in STYLE.thread[only]:
        config = _as_prepared(config, run)
    check_keys()
    with run_lock(run):
        prepare_folders(run, STYLE, stages, alone=bool(only))
        config = with_store(config, run)
        dump_config(config, run.config)
        return _run(config, run, stages, only, quiet)


def _as_prepared(config: StyleRunConfig, run: RunDir) -> StyleRunConfig:
    """What a stage alone works on is what the folder was prepared from, whatever file is named now."""
    before = StyleRunConfig.parse(load_yaml(run.config), str(run.config))
    return config.model_copy(update={name: getattr(before, name) for name in ("labelled", "labels", "prepare")})


def _run(config: StyleRunConfig, run: RunDir, stages: tuple[str, ...], only: str, quiet: bool) -> dict[str, Any]:
    started, clock = datetime.now(UTC), time.monotonic()
    record: dict[str, Any] = {"status": "failed", "started": started.isoformat(), "code": code_version()}
    labelled = config.labelled.resolve()
    try:
        write_job(run, LocalJob(STYLE.name, {"labelled": str(labelled)}, "", stages, alone=bool(only)))
        execute(run, STYLE, stages, quiet)
        record["status"] = "done"
    finally:
        link_files(run, {"labelled": labelled}, stages)
        record["seconds"] = round(time.monotonic() - clock, 3)
        record["ran"] = stages
        record["steps"] = {stage: run.step_record(stage) for stage in STYLE.stages}
        record["verdict"] = gate_verdict(record["steps"], stages)
        write_json(run.record, record)
    return record
