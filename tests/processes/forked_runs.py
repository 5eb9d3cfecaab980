"""Runs under test, whose steps, servers and trainings are forked from processes that have imported their libraries.

    subprocess.run([sys.executable, "-c", "from commands.cli import main; main()", ...], env=fork_environment())

A step of its own Python takes five seconds of a core before it begins, and a run has a dozen. That commands, steps
and servers of a run need none of this is tested in pipelines/test_company_to_report.py.
"""

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path

from standins.verl_cpu import fork_server
from tests.processes.forkserver import GATEWAY, MODELS, connect, socket_path
from tests.run_forks.sitecustomize import FORKS_VARIABLE

SWIFT = ("swift.pipelines.train.kto", "torch.utils.tensorboard")
"""Module that imports all that a training of ms-swift imports."""

VERL = ("tests.models.verl_libraries",)
VLLM = ("tests.models.vllm_libraries",)
STEP = "kfp.dsl.executor_main"
SERVERS_OF_MODELS = ("serving.rewriter", "serving.style")
REST = (
    "serving.rag", "serving.gateway", "standins.teacher", "standins.company_rag", "standins.rollout_local",
    "standins.rollout_local.serve", "pipelines.execute.local_execution", "tests.processes.qinglan_command",
)  # fmt: skip


def fork_environment(trainings: Mapping[str, str] | None = None, models: bool = True) -> dict[str, str]:
    """This process's environment, in which the Pythons of a run that run these modules, or trainings', are forks.

    A run that loads no model needs only forks of a small process.
    """
    paths = {module: socket_path(GATEWAY) for module in (STEP, *REST)}
    if models:
        paths |= dict.fromkeys((STEP, *SERVERS_OF_MODELS), socket_path(MODELS))
    for path in set(paths.values()):
        connect(path).close()  # a run waits for its servers only so long
    return {**os.environ, **forks_variables({**paths, **(trainings or {})})}


def swift_sockets() -> dict[str, str]:
    return {"swift.cli.sft": socket_path(SWIFT)} | dict.fromkeys(
        ("torch.distributed.run", "components.training.sft.finish"), socket_path(MODELS)
    )


def verl_socket() -> dict[str, str]:
    return {fork_server.__name__: socket_path(VERL)}


def forks_variables(sockets: Mapping[str, str], python: str = sys.executable) -> dict[str, str]:
    """Variables that make this Python with one of these modules go on as a fork of the server at its socket."""
    prefix = str(Path(python).parents[1])
    known = json.loads(os.environ.get(FORKS_VARIABLE, "{}"))
    return {
        FORKS_VARIABLE: json.dumps({**known, prefix: sockets}),
        "PYTHONPATH": str(Path(__file__).parents[1] / "run_forks"),
    }
