"""The parts of a cluster as processes: each with a record of what it is, so that only it is ever ended.

A process is ours if it still runs our binary and was born when the record says: a number is used again by others.
"""

import json
import os
import select
import signal
import ssl
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

import httpx

from qinglan.errors import OutageError
from qinglan.files.files import atomic_write
from qinglan.processes.services import end_with_parent
from tests.cluster.build.binaries import binary

READY_SECONDS = 600.0
END_SECONDS = 15.0
LAST_LINES = 15


class Part(NamedTuple):
    name: str
    program: str
    """A name of tests/cluster/build/programs.py, or an absolute path."""
    arguments: list[str]
    settings: dict[str, str]
    ready: str = ""
    """Address that answers 200 when the part is ready; without an address, a part that runs is ready."""


class Record(NamedTuple):
    """A part that was started, and which process it became."""

    part: Part
    executable: str
    pid: int
    born: int


class Folder(NamedTuple):
    """Folder of a cluster's state; the path is absolute because kubeconfigs contain it."""

    root: Path

    @property
    def pki(self) -> Path:
        return self.root / "pki"

    @property
    def kubeconfig(self) -> Path:
        return self.pki / "admin.kubeconfig"

    @property
    def records(self) -> Path:
        return self.root / "parts"

    def log(self, name: str) -> Path:
        return self.root / "logs" / f"{name}.log"


def start(folder: Folder, part: Part, outlives: bool) -> Record:
    """`outlives`: it stays when we end. Otherwise it is told to stop when we are killed."""
    executable = part.program if part.program.startswith("/") else str(binary(part.program))
    folder.log(part.name).parent.mkdir(parents=True, exist_ok=True)
    with folder.log(part.name).open("ab") as log:
        process = subprocess.Popen(
            [executable, *part.arguments], cwd=folder.root, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            start_new_session=True, preexec_fn=None if outlives else end_with_parent,
            env={"HOME": str(folder.root), "PATH": "/usr/bin:/bin", "GOGC": "50", **part.settings},
        )  # fmt: skip
    process.returncode = 0  # nobody waits for it through this object: `end` and `gone` look at the process itself
    record = Record(part, str(Path(executable).resolve()), process.pid, _born(process.pid))
    folder.records.mkdir(mode=0o700, exist_ok=True)
    with atomic_write(folder.records / f"{part.name}.json") as partial:
        partial.write_text(json.dumps(record))
    return record


def records(folder: Folder) -> list[Record]:
    """Processes that were started here, running or not."""
    result = [json.loads(file.read_text()) for file in sorted(folder.records.glob("*.json"))]
    return [Record(Part(*part), *rest) for part, *rest in result]


def runs(record: Record) -> bool:
    """Tell if this very process still runs."""
    with suppress(OSError):
        executable = str(Path(f"/proc/{record.pid}/exe").readlink()).removesuffix(" (deleted)")
        return executable == record.executable and _born(record.pid) == record.born
    return False


def end(each: list[Record]) -> None:
    """Kill what is ours, all at once: nothing of it is kept, so nothing needs an orderly end."""
    with _held(each) as processes:
        for descriptor in processes:
            signal.pidfd_send_signal(descriptor, signal.SIGKILL)
        deadline = time.monotonic() + END_SECONDS
        for descriptor in processes:
            select.select([descriptor], [], [], max(0.0, deadline - time.monotonic()))
    for record in each:
        with suppress(ChildProcessError):  # another process of ours started it
            os.waitpid(record.pid, os.WNOHANG)


@contextmanager
def _held(each: list[Record]) -> Iterator[list[int]]:
    """A handle on every process that is ours; taken before it is checked, so that it cannot become another's."""
    handles = []
    try:
        for record in each:
            with suppress(ProcessLookupError):
                handle = os.pidfd_open(record.pid)
                handles.append((handle, record))
        yield [handle for handle, record in handles if runs(record)]
    finally:
        for handle, _ in handles:
            os.close(handle)


def resident(record: Record) -> int:
    """Its memory in bytes, 0 if it runs no more."""
    with suppress(OSError, StopIteration):
        lines = Path(f"/proc/{record.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS:")) * 1024
    return 0


def worked(record: Record) -> float:
    """The processor seconds that it took so far."""
    fields = Path(f"/proc/{record.pid}/stat").read_text().rpartition(") ")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def step_printer() -> Callable[[str], None]:
    """Make a function that prints a line with the seconds since now."""
    began = time.monotonic()
    return lambda text: print(f"{time.monotonic() - began:6.1f} s  {text}", flush=True)


def until(what: str, done: Callable[[], bool], folder: Folder, seconds: float = READY_SECONDS) -> None:
    """Wait for it, and no longer than every part that was started runs."""
    deadline = time.monotonic() + seconds
    while not done():
        for record in records(folder):
            if not runs(record):
                raise OutageError(log_tail(folder, record.part.name, "ended while the cluster came up"))
        if time.monotonic() > deadline:
            raise OutageError(f"{what}: not so after {seconds:.0f} s. The logs are in {folder.root / 'logs'}.")
        time.sleep(0.1)


def answering(api: httpx.Client, part: Part) -> Callable[[], bool]:
    def is_ready() -> bool:
        with suppress(httpx.TransportError):
            return api.get(part.ready).is_success
        return False

    return is_ready


def admin_client(folder: Folder) -> httpx.Client:
    """Over TLS as the administrator; quicker than a kubectl where something is asked again and again."""
    trusted = ssl.create_default_context(cafile=folder.pki / "ca.crt")
    trusted.load_cert_chain(folder.pki / "admin.crt", folder.pki / "admin.key")
    return httpx.Client(timeout=60, verify=trusted, trust_env=False)


def log_tail(folder: Folder, name: str, what: str) -> str:
    log = folder.log(name)
    last = log.read_text(errors="replace").splitlines()[-LAST_LINES:]
    return "\n".join([f"{name} {what}. The last lines of {log}:", *last])


def _born(pid: int) -> int:
    """When it started, in ticks since the machine did."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()[19])
