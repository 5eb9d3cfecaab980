"""Each Python of a rehearsal on several machines loads this file: a training's job then has its pods on loopback.

They are processes with the environment that the real operator gives the pods of such a job, and run what pods run.
"""

import os
from pathlib import Path
from types import ModuleType

from components.training.ppo.plugin.import_hooks import when_imported
from qinglan.files.scratch import SCRATCH_VARIABLE


@when_imported("components.training.kubeflow.job_runner")
def _pods_on_loopback(module: ModuleType) -> None:
    from tests.qinglan.jobs.rendered_env import LoopbackRunner

    logs = Path(os.environ[SCRATCH_VARIABLE])
    logs.mkdir(parents=True, exist_ok=True)
    module.job_runner = lambda device, task_config: LoopbackRunner(logs)  # type: ignore[attr-defined]
