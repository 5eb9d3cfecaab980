"""The child process of `qinglan run`: executes the graph with kfp.local. `python -m pipelines.local RUN`

A process of its own, because kfp.local writes the steps' output to stdout and says no more than "failed".
"""

import os
import signal
import sys
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from pipelines.config import RunConfig
from pipelines.rundir import NAMES, RunDir, write_json
from qinglan.config import load_yaml
from qinglan.lineage.record import RECORDS_VARIABLE

JOB = "job.json"


class Job(NamedTuple):
    """What the child must know beside the configuration."""

    questions_uri: str
    knowledge_base_uri: str
    gateway_url: str
    only: str = ""


def write_job(run: RunDir, job: Job) -> None:
    write_json(run.root / JOB, job._asdict())


def execute(run: RunDir) -> None:
    """Run the whole graph, or one stage on what the run's folder holds."""
    from kfp import local

    job = Job(**orjson.loads((run.root / JOB).read_bytes()))
    config = RunConfig.parse(load_yaml(run.config), str(run.config))
    os.environ[RECORDS_VARIABLE] = str(run.records.resolve())
    local.init(runner=local.SubprocessRunner(use_venv=False), pipeline_root=str(run.artifacts))
    if job.only:
        _execute_alone(run, job, config)
    else:
        _execute_all(job, config)


def _execute_all(job: Job, config: RunConfig) -> None:
    from pipelines.rewriter import rewriter

    rewriter(
        questions_uri=job.questions_uri,
        knowledge_base_uri=job.knowledge_base_uri,
        gateway_url=job.gateway_url,
        generate_config=config.generate.model_dump(mode="json"),
        validate_config=config.validate_.model_dump(mode="json"),
        convert_config=config.convert.model_dump(mode="json"),
    )


INPUTS = {"generate": ["questions"], "validate": ["rewrites", "knowledge_base"], "convert": ["validated"]}


def _execute_alone(run: RunDir, job: Job, config: RunConfig) -> None:
    from pipelines.rewriter import alone

    configs = {"generate": config.generate, "validate": config.validate_, "convert": config.convert}
    parameters: dict[str, Any] = {"config": configs[job.only].model_dump(mode="json")}
    if job.gateway_url:
        parameters["gateway_url"] = job.gateway_url
    given = {"questions": job.questions_uri, "knowledge_base": job.knowledge_base_uri}
    newest = {name: str((run.files / NAMES[name]).resolve()) for name in INPUTS[job.only]}
    alone(job.only, {name: given.get(name, uri) for name, uri in newest.items()}, parameters)()


def _end_with_steps(*_: object) -> None:
    """Steps are children of this process's group; one that outlived it would write beside the next run."""
    os.killpg(os.getpgrp(), signal.SIGKILL)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, _end_with_steps)
    try:
        execute(RunDir(Path(sys.argv[1])))
    except RuntimeError as error:  # kfp.local's word for a failed step; its record says more
        sys.exit(f"kfp.local: {error}")
