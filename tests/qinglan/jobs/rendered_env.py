"""The environments that training-operator really rendered, and pods that live on loopback instead.

tests/cluster/jobs/test_rendered_env.py holds the file against a real operator and writes it.
"""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import orjson

from qinglan.jobs import JobSpec, Outcome
from qinglan.jobs.local import terminate_process_group
from tests.cluster.plane.ports import free_port

RENDERED = Path(__file__).parent / "rendered_env.json"
SHAPES = ((1, 4), (2, 1), (2, 4), (3, 1))
"""Nodes, and processes of each."""


def shape_name(nodes: int, per_node: int) -> str:
    return f"{nodes}x{per_node}"


def rendered(nodes: int, per_node: int) -> list[dict[str, str]]:
    """By rank."""
    result: list[dict[str, str]] = orjson.loads(RENDERED.read_bytes())[shape_name(nodes, per_node)]
    return result


def on_loopback(nodes: int, per_node: int) -> list[dict[str, str]]:
    """The same, with addresses that exist here: no DNS knows a pod's name."""
    port = str(free_port())
    here = {"MASTER_ADDR": "127.0.0.1", "PET_MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "PET_MASTER_PORT": port}
    names = [f"sft-{shape_name(nodes, per_node)}-{role}" for role in ("master-0", *_workers(nodes))]
    return [
        environment | here | {"HOSTNAME": name}
        for environment, name in zip(rendered(nodes, per_node), names, strict=True)
    ]


def _workers(nodes: int) -> list[str]:
    return [f"worker-{number}" for number in range(nodes - 1)]


def inside(join: str, nodes: int, per_node: int, argv: Sequence[str], *options: str) -> list[str]:
    """The command of a pod of such a job."""
    size = ["--nodes", str(nodes), "--per-node", str(per_node)]
    return [sys.executable, "-m", "qinglan.jobs.inside", "--join", join, *size, *options, "--", *argv]


def pod(
    command: Sequence[str], environment: Mapping[str, str], log: Path, folder: Path | None = None
) -> "subprocess.Popen[bytes]":
    """A process that has what the pod's container would have."""
    with log.open("ab") as file:
        return subprocess.Popen(
            command, env={**os.environ, **environment}, stdout=file, stderr=subprocess.STDOUT, cwd=folder,
            process_group=0,
        )  # fmt: skip


class LoopbackRunner:
    """A cluster in small: each node of a job is a process, with the environment that the operator rendered for it."""

    remote = True

    def __init__(self, logs: Path, alone: bool = False) -> None:
        """`alone` starts them as a launcher would that knows nothing of qinglan.jobs.inside."""
        self.logs, self.alone = logs, alone
        self.started: list[subprocess.Popen[bytes]] = []
        """The pods of the last job, by rank."""

    def attaches(self, spec: JobSpec) -> bool:
        return False

    def run(
        self,
        spec: JobSpec,
        log: Path,
        on_line: Callable[[str], None] = lambda line: None,
        stop: Callable[[], bool] = lambda: False,
    ) -> Outcome:
        command = list(spec.command.argv)
        if spec.join and not self.alone:
            command = inside(spec.join, spec.nodes, spec.per_node, spec.command.argv)
        environments = on_loopback(spec.nodes, spec.per_node) if spec.nodes > 1 else [{}]
        logs = [log, *(self.logs / f"{spec.name}-worker-{rank}.log" for rank in range(spec.nodes - 1))]
        self.started[:] = [
            pod(command, {**spec.command.environment, **environment}, path, spec.command.folder)
            for environment, path in zip(environments, logs, strict=True)
        ]
        head = self.started[0]
        try:
            while head.poll() is None and not stop():
                time.sleep(0.2)
            for process in self.started[1:]:
                process.wait(300)
        finally:
            for process in self.started:
                terminate_process_group(process)
        return Outcome(head.returncode)
