"""The contract of a job: command, machines and outcome, the same for a process here and a job on a cluster."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Literal, NamedTuple, Protocol

Join = Literal["torchrun", "ray"]
"""How the nodes of a training find each other: ms-swift's torchrun, or a Ray cluster as verl wants it."""


class Command(NamedTuple):
    argv: Sequence[str]
    environment: Mapping[str, str] = {}
    """Variables in addition to those of this process."""

    folder: Path | None = None
    """The working folder."""


class JobSpec(NamedTuple):
    """A command, and the machines it needs."""

    name: str
    """The step, such as "sft". With the run's id it names the job, so that a retry finds it again."""

    command: Command
    nodes: int = 1
    per_node: int = 1
    """GPUs of a node, and processes there."""

    join: Join | None = None
    """None: the command is one process, or starts what it needs by itself."""

    hours: float = 24.0
    """Time limit in hours."""


class Outcome(NamedTuple):
    code: int
    """The exit code of the command that counts; 0 is success."""

    reason: str = ""
    """The cluster's reason for a failure, with the pod that failed and the next step; empty on this machine."""


class Runner(Protocol):
    """Runs a job to its end. An interrupted `run` ends the job and leaves nothing behind."""

    remote: bool
    """True if the command runs elsewhere, and this machine needs no GPU for it.

    It then sees only the shared volumes: QINGLAN_CACHE, QINGLAN_SCRATCH, QINGLAN_BASE_WEIGHTS.
    """

    def attaches(self, spec: JobSpec) -> bool:
        """True if `run` would follow the job of an earlier attempt, whose files must stay."""

    def run(
        self,
        spec: JobSpec,
        log: Path,
        on_line: Callable[[str], None] = lambda line: None,
        stop: Callable[[], bool] = lambda: False,
    ) -> Outcome:
        """Write the output to `log` and each line to `on_line`; `stop` is polled, and True ends the job."""
