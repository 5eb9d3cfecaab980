"""The contract of a job: command, machines and outcome, the same for a process here and a job on a cluster."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Literal, NamedTuple, Protocol

Join = Literal["torchrun", "ray"]
"""How the nodes of a training find each other: ms-swift's torchrun, or a Ray cluster as verl wants it."""


class Command(NamedTuple):
    argv: Sequence[str]
    environment: Mapping[str, str] = {}
    """Variables beside those of this process."""

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
    """The longest it may take."""


class Outcome(NamedTuple):
    code: int
    """The exit code of the command that counts; 0 is success."""

    reason: str = ""
    """The cluster's word about a failure, with the pod that failed and the next step; empty on this machine."""


class Runner(Protocol):
    """Runs a job to its end. Whoever interrupts `run` ends the job with it: nothing is left behind."""

    remote: bool
    """The command runs elsewhere: it sees the shared volumes (QINGLAN_CACHE, QINGLAN_SCRATCH, QINGLAN_BASE_WEIGHTS)
    and nothing else of this machine, and this machine needs no GPU for it."""

    def attaches(self, spec: JobSpec) -> bool:
        """An earlier attempt's job runs or has ended well, and `run` would follow it: what it wrote must stay."""

    def run(
        self,
        spec: JobSpec,
        log: Path,
        on_line: Callable[[str], None] = lambda line: None,
        stop: Callable[[], bool] = lambda: False,
    ) -> Outcome:
        """Its output goes to `log` and, line by line, to `on_line`; `stop` is asked now and then: True ends it."""
