"""The child process of `qinglan run`: executes the graph with kfp.local.

`python -m pipelines.execute.local_execution RUN`

This is a process of its own, because kfp.local writes the steps' output to stdout and reports a failure without its
cause.
"""

import os
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from components.evaluation.rewriter.folds import FOLDS_VARIABLE
from pipelines.execute.rundir import RunDir, write_json
from pipelines.lines.all_lines import LINES
from pipelines.lines.cluster_resources import LOCAL_CLUSTER
from pipelines.lines.line import BEFORE, LINEAGE, Line
from qinglan.config import load_yaml
from qinglan.files.scratch import SCRATCH_VARIABLE as SCRATCH_VARIABLE
from qinglan.lineage.steps.record import RECORDS_VARIABLE
from qinglan.live.outlets import LIVE_VARIABLE
from qinglan.run_id import RUN_VARIABLE
from qinglan.store import STORE_VARIABLE

JOB = "job.json"


class LocalJob(NamedTuple):
    """Everything that the child process must know, apart from the configuration."""

    line: str
    inputs: dict[str, str]
    """Paths of the artifacts that no stage makes, by the artifact's name."""

    gateway_url: str
    """URL of the run's gateway; empty if no stage calls it."""

    stages: tuple[str, ...]
    """Stages to run: from the line's inputs or, if `alone`, on artifacts that the run's folder already holds."""

    alone: bool = False

    pythons: Mapping[str, str] = {}
    """The interpreter of each stage that runs in an environment of its own."""

    environment: Mapping[str, str] = {}
    """Further environment variables of the steps."""


def write_job(run: RunDir, job: LocalJob) -> None:
    write_json(run.root / JOB, job._asdict())


def read_job(run: RunDir) -> LocalJob:
    values = orjson.loads((run.root / JOB).read_bytes())
    return LocalJob(**{**values, "stages": tuple(values["stages"])})


def execute_job(run: RunDir) -> None:
    """Run the stages of the folder's job."""
    from kfp import local

    job = read_job(run)
    line = LINES[job.line]
    settings = line.config.parse(load_yaml(run.config), str(run.config)).stages()
    store = {STORE_VARIABLE: settings["register"]["store"]}
    os.environ.update({**step_environment(run), **store, **job.environment})
    local.init(runner=local.SubprocessRunner(use_venv=False), pipeline_root=str(run.artifacts))
    if job.alone:
        _execute_alone(run, line, job, settings)
    else:
        from pipelines.graph.graph import GATEWAY_URL, line_graph

        gateway = {GATEWAY_URL: job.gateway_url} if line.gateway else {}
        graph = line_graph(line, job.stages, settings, LOCAL_CLUSTER._replace(pythons=job.pythons))
        graph(**job.inputs, **gateway)


def step_environment(run: RunDir) -> dict[str, str]:
    """Return the environment variables that tell a step where its record, checkpoints and live figures go."""
    return {
        RECORDS_VARIABLE: str(run.records.resolve()),
        RUN_VARIABLE: run.root.resolve().name,
        SCRATCH_VARIABLE: str(run.scratch.resolve()),
        LIVE_VARIABLE: str(run.live.resolve()),
        FOLDS_VARIABLE: "",  # the environment that started this run may name another run's folds
    }


def _execute_alone(run: RunDir, line: Line, job: LocalJob, settings: dict[str, dict[str, Any]]) -> None:
    from pipelines.graph.graph import GATEWAY_URL, RELEASE_NAME, GraphInputs, partial_graph

    stages = [line.stages[name] for name in job.stages]
    outputs = {item for stage in stages for item in stage.outputs}
    imported = dict.fromkeys(item for stage in stages for item in stage.inputs if item not in outputs)
    uris = {item: job.inputs.get(item) or str(run.artifact(item)) for item in imported}
    if job.stages[0] != next(iter(line.stages)):
        uris[BEFORE] = str(run.artifact(LINEAGE))
    cluster = LOCAL_CLUSTER._replace(pythons=job.pythons)
    parameters = {GATEWAY_URL: job.gateway_url, RELEASE_NAME: settings["register"]["name"]}
    partial_graph(line, job.stages, uris, GraphInputs(settings, parameters, cluster))()


if __name__ == "__main__":
    # Steps are in this process's group. A step that outlived this process would write into the next run's files.
    signal.signal(signal.SIGTERM, lambda *_: os.killpg(os.getpgrp(), signal.SIGKILL))
    try:
        execute_job(RunDir(Path(sys.argv[1])))
    except RuntimeError as error:  # kfp.local's error for a failed step; the step's record says more
        sys.exit(f"kfp.local: {error}")
