"""Runs under test, whose steps and servers are forked from a process that has imported torch, transformers and kfp.

    subprocess.run([sys.executable, "-c", "from pipelines.cli import main; main()", ...], env=fork_environment())

A step of its own Python takes five seconds of a core before it begins, and a run has a dozen. That a run needs none
of this is tested in pipelines/test_company_to_report.py.
"""

import json
import os
import sys
from pathlib import Path

from tests.forkserver import GATEWAY, MODELS, connect, socket_path
from tests.run_forks.sitecustomize import FORKS_VARIABLE

STEPS = tuple(dict.fromkeys((*MODELS, *GATEWAY, "kfp.dsl.executor", "peft", "datasets", "openpyxl")))
MODULES = ("kfp.dsl.executor_main", "serving.rewriter", "serving.rag", "serving.gateway", "standins.teacher")


def fork_environment() -> dict[str, str]:
    """This process's environment, in which the Pythons of a run that run these modules are forks."""
    path = socket_path(STEPS)
    connect(path).close()  # a run waits for its servers only so long
    sockets = dict.fromkeys(MODULES, path)
    forks = str(Path(__file__).parent / "run_forks")
    return {**os.environ, FORKS_VARIABLE: json.dumps([sys.prefix, sockets]), "PYTHONPATH": forks}
