"""Run one pod of a job: python -m qinglan.jobs.inside --join torchrun|ray --nodes N --per-node G -- ARGV..."""

import argparse
import os
import signal
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from qinglan.errors import QinglanError
from qinglan.jobs.inside.head import run_head
from qinglan.jobs.inside.node_info import NodeInfo, read_node_info, torchrun_environment
from qinglan.jobs.inside.worker import run_worker
from qinglan.jobs.processes import PROCESS_MARK_VARIABLE, process_cleanup
from qinglan.terminal import say

WAIT_SECONDS = 900.0


def main(argv: Sequence[str]) -> int:
    arguments = _parse(argv)
    try:
        where = read_node_info(os.environ, arguments.nodes, arguments.per_node)
        if arguments.join == "torchrun":
            _exec_training(arguments.argv, torchrun_environment(os.environ, where))
        return _run_ray_node(where, arguments.argv, arguments.wait)
    except QinglanError as error:
        # Printed like an uncaught Python error, because command_failures.py shows the last such line of the log.
        say(f"{type(error).__module__}.{type(error).__name__}: {error}", to=sys.stderr)
        return error.exit_code


def _parse(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m qinglan.jobs.inside", description=__doc__)
    parser.add_argument("--join", choices=("torchrun", "ray"), required=True)
    parser.add_argument("--nodes", type=int, required=True)
    parser.add_argument("--per-node", type=int, required=True, help="GPUs, and processes, of each")
    parser.add_argument("--wait", type=float, default=WAIT_SECONDS, help="seconds until all nodes must be there")
    parser.add_argument("argv", nargs="+", help="what to run, after --")
    return parser.parse_args(argv)


def _exec_training(argv: Sequence[str], environment: dict[str, str]) -> NoReturn:
    """Replace this process by the training, so that the training gets the pod's signals and sets its exit code."""
    sys.stdout.flush()
    os.execvpe(argv[0], list(argv), environment)


def _run_ray_node(where: NodeInfo, argv: Sequence[str], wait: float) -> int:
    # Kubernetes ends a pod by SIGTERM. It is raised as SystemExit, so that `finally` blocks end Ray and the training.
    # https://kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle/#pod-termination
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    with (
        tempfile.TemporaryDirectory() as notes,
        process_cleanup(Path(notes) / "running") as (mark, folder),
    ):
        environment = {**os.environ, PROCESS_MARK_VARIABLE: mark}
        if where.rank == 0:
            return run_head(where, argv, environment, folder, wait)
        return run_worker(where, environment, wait)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
