"""Runs under test, whose steps, servers and trainings are forked from processes that have imported their libraries.

    subprocess.run([sys.executable, "-c", "from pipelines.cli import main; main()", ...], env=fork_environment())

A step of its own Python takes five seconds of a core before it begins, and a run has a dozen. That a run needs none
of this is tested in pipelines/test_company_to_report.py.
"""

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path

from standins.verl_cpu import fork_server
from tests.forkserver import GATEWAY, MODELS, connect, socket_path
from tests.run_forks.sitecustomize import FORKS_VARIABLE

STEPS = tuple(dict.fromkeys((*MODELS, *GATEWAY, "kfp.dsl.executor", "peft", "datasets", "openpyxl")))
SWIFT = ("swift.pipelines.train.kto", "swift.pipelines.export.export", "torch.utils.tensorboard")
"""What imports all that a training and a merge of ms-swift import."""

VERL = ("tests.verl_libraries",)
VLLM = ("tests.vllm_libraries",)
MODULES = (
    "kfp.dsl.executor_main", "serving.rewriter", "serving.style", "serving.rag", "serving.gateway",
    "standins.teacher",
)  # fmt: skip


def fork_environment(trainings: Mapping[str, str] | None = None) -> dict[str, str]:
    """This process's environment, in which the Pythons of a run that run these modules, or trainings', are forks."""
    path = socket_path(STEPS)
    connect(path).close()  # a run waits for its servers only so long
    return {**os.environ, **forks_variables({**dict.fromkeys(MODULES, path), **(trainings or {})})}


def swift_sockets() -> dict[str, str]:
    trainings = dict.fromkeys(("swift.cli.sft", "swift.cli.export"), socket_path(SWIFT))
    return trainings | dict.fromkeys(("torch.distributed.run", "components.training.sft.finish"), socket_path(STEPS))


def verl_socket() -> dict[str, str]:
    return {fork_server.__name__: socket_path(VERL)}


def forks_variables(sockets: Mapping[str, str], python: str = sys.executable) -> dict[str, str]:
    """Variables that make this Python with one of these modules go on as a fork of the server at its socket."""
    forks, prefix = Path(__file__).parent / "run_forks", Path(python).parents[1]
    return {FORKS_VARIABLE: json.dumps([str(prefix), sockets]), "PYTHONPATH": str(forks)}
