"""Command, machines and outcome of a job, the same for a local process and for a job on a cluster."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Literal, NamedTuple, Protocol

Join = Literal["torchrun", "ray"]
"""Method by which the nodes of a training join: torchrun for ms-swift, a Ray cluster for verl."""


class Command(NamedTuple):
    argv: Sequence[str]
    environment: Mapping[str, str] = {}
    """Environment variables that are added to those of this process."""

    folder: Path | None = None
    """Working folder of the command; None is the folder of this process."""


class JobSpec(NamedTuple):
    """A command, and the machines it needs."""

    name: str
    """Name of the step, such as "sft". The job's name is made of the step's name and the run's id, so that a retry
    finds the job."""

    command: Command
    nodes: int = 1
    per_node: int = 1
    """Number of GPUs, and of processes, on each node."""

    join: Join | None = None
    """Method by which the nodes join; None if the command is one process or starts its processes by itself."""

    hours: float = 24.0
    """Time limit in hours."""


class Outcome(NamedTuple):
    code: int
    """Exit code of the command, or of the pod that caused the failure; 0 is success."""

    reason: str = ""
    """Reason for a failure, such as the failed pod or the exceeded time limit; empty if only the log shows it."""


class Runner(Protocol):
    """Protocol of a class that runs a job to its end. An interrupted `run` ends the job and leaves nothing behind."""

    remote: bool
    """True if the command runs on another machine, so that this machine needs no GPU.

    The command then sees only the shared volumes: QINGLAN_CACHE, QINGLAN_SCRATCH, QINGLAN_BASE_WEIGHTS.
    """

    def attaches(self, spec: JobSpec) -> bool:
        """Return True if `run` would attach to an earlier attempt's job, whose files must then stay."""

    def run(
        self,
        spec: JobSpec,
        log: Path,
        on_line: Callable[[str], None] = lambda line: None,
        stop: Callable[[], bool] = lambda: False,
    ) -> Outcome:
        """Run the job and return its outcome; output goes to `log` and, line by line, to `on_line`.

        `stop` is polled; if it returns True, the job is ended.
        """
