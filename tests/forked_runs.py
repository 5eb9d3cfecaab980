"""Runs under test, whose steps, servers and trainings are forked from processes that have imported their libraries.

    subprocess.run([sys.executable, "-c", "from pipelines.cli import main; main()", ...], env=fork_environment())

A step of its own Python takes five seconds of a core before it begins, and a run has a dozen. That a run needs none
of this is tested in pipelines/test_company_to_report.py.
"""

import json
import os
import sys
from pathlib import Path

from standins.verl_cpu import fork_server
from tests.forkserver import GATEWAY, MODELS, connect, socket_path
from tests.run_forks.sitecustomize import FORKS_VARIABLE

STEPS = tuple(dict.fromkeys((*MODELS, *GATEWAY, "kfp.dsl.executor", "peft", "datasets", "openpyxl")))
SWIFT = ("swift.pipelines.train.kto", "swift.pipelines.export.export", "torch.utils.tensorboard")
"""What imports all that a training and a merge of ms-swift import."""

VERL = ("tests.verl_libraries",)
MODULES = ("kfp.dsl.executor_main", "serving.rewriter", "serving.rag", "serving.gateway", "standins.teacher")


def fork_environment() -> dict[str, str]:
    """This process's environment, in which the Pythons of a run that run these modules are forks."""
    path = socket_path(STEPS)
    sockets = dict.fromkeys(MODULES, path) | {"swift.cli.sft": socket_path(SWIFT)} | verl_socket()
    connect(path).close()  # a run waits for its servers only so long
    return {**os.environ, **forks_variables(sockets)}


def verl_socket() -> dict[str, str]:
    return {fork_server.__name__: socket_path(VERL)}


def forks_variables(sockets: dict[str, str]) -> dict[str, str]:
    """Variables that make a Python with one of these modules go on as a fork of the server at its socket."""
    forks = str(Path(__file__).parent / "run_forks")
    return {FORKS_VARIABLE: json.dumps([sys.prefix, sockets]), "PYTHONPATH": forks}
