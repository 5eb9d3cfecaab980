"""The child process of `qinglan run`: executes the graph with kfp.local. `python -m pipelines.local RUN`

A process of its own, because kfp.local writes the steps' output to stdout and says no more than "failed".
"""

import os
import signal
import sys
from pathlib import Path
from typing import NamedTuple

import orjson

from pipelines.config import RunConfig
from pipelines.rundir import NAMES, RunDir, write_json
from pipelines.thread import THREAD
from qinglan.config import load_yaml
from qinglan.lineage.record import RECORDS_VARIABLE
from qinglan.scratch import VARIABLE as SCRATCH_VARIABLE

JOB = "job.json"


class Job(NamedTuple):
    """What the child must know beside the configuration."""

    questions_uri: str
    knowledge_base_uri: str
    gateway_url: str
    stages: tuple[str, ...]
    """From the thread's beginning; or one alone."""

    alone: bool = False


def write_job(run: RunDir, job: Job) -> None:
    write_json(run.root / JOB, job._asdict())


def execute(run: RunDir) -> None:
    """Run the thread's stages, or one alone on what the run's folder holds."""
    from kfp import local

    job = read_job(run)
    config = RunConfig.parse(load_yaml(run.config), str(run.config))
    os.environ[RECORDS_VARIABLE] = str(run.records.resolve())
    os.environ[SCRATCH_VARIABLE] = str(run.scratch.resolve())
    local.init(runner=local.SubprocessRunner(use_venv=False), pipeline_root=str(run.artifacts))
    if job.alone:
        _execute_alone(run, job, config)
    else:
        _execute_all(job, config)


def read_job(run: RunDir) -> Job:
    values = orjson.loads((run.root / JOB).read_bytes())
    return Job(**{**values, "stages": tuple(values["stages"])})


def _execute_all(job: Job, config: RunConfig) -> None:
    from pipelines.rewriter import until

    until(job.stages)(
        questions_uri=job.questions_uri,
        knowledge_base_uri=job.knowledge_base_uri,
        gateway_url=job.gateway_url,
        **{f"{stage}_config": values for stage, values in config.stages().items()},
    )


def _execute_alone(run: RunDir, job: Job, config: RunConfig) -> None:
    from pipelines.rewriter import alone

    [stage] = job.stages
    given = {"questions": job.questions_uri, "knowledge_base": job.knowledge_base_uri}
    inputs = {name: given.get(name) or str((run.files / NAMES[name]).resolve()) for name in THREAD[stage]}
    alone(stage, inputs, {"config": config.stages().get(stage, {}), "gateway_url": job.gateway_url})()


def _end_with_steps(*_: object) -> None:
    """Steps are children of this process's group; one that outlived it would write beside the next run."""
    os.killpg(os.getpgrp(), signal.SIGKILL)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, _end_with_steps)
    try:
        execute(RunDir(Path(sys.argv[1])))
    except RuntimeError as error:  # kfp.local's word for a failed step; its record says more
        sys.exit(f"kfp.local: {error}")
