"""Run Qinglan's servers for the length of a block: start each as a local process, wait for its URL, and stop it."""

import ctypes
import os
import queue
import secrets
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

import orjson

from qinglan.errors import OutageError, error_class_for
from qinglan.files.files import open_private
from qinglan.processes.process_guard import process_guard
from qinglan.terminal import quoted

READY_SECONDS = 120.0
"""Time limit in seconds for the start of a server that loads no large model."""
PR_SET_PDEATHSIG = 1
STOP_SECONDS = 15.0
LAST_LINES = 12
UNASSIGNED_PORTS = range(20_000, 30_000)
"""Ports from which a free port is chosen.

They lie below Kubernetes' node ports, which begin at 30000, and below Linux's ports for outgoing connections, which
begin at 32768.
"""


@contextmanager
def run_service(module: str, arguments: list[str], log: Path, ready_seconds: float = READY_SECONDS) -> Iterator[str]:
    """Run `python -m <module>`, yield the URL that it announces, and stop it at the end."""
    with start_service(module, arguments, log, ready_seconds) as url:
        yield url()


@contextmanager
def start_service(
    module: str, arguments: list[str], log: Path, ready_seconds: float = READY_SECONDS
) -> Iterator[Callable[[], str]]:
    """Start `python -m <module>` without waiting. The yielded function waits for the server's URL and returns it."""
    command = [sys.executable, "-m", module, *arguments]
    with start_command(command, module.partition(".")[2], log, ready_seconds) as url:
        yield url


@contextmanager
def start_command(
    command: Sequence[str], name: str, log: Path, ready_seconds: float = READY_SECONDS
) -> Iterator[Callable[[], str]]:
    """Start a server that prints its URL as JSON under `name`. The yielded function waits for the URL."""
    log.parent.mkdir(parents=True, exist_ok=True)
    # A separate session: Ctrl-C reaches only this process, which then stops the service in order.
    with (
        open_private(log, "wb") as errors,
        guarded_process(command, stdout=subprocess.PIPE, stderr=errors) as process,
    ):
        yield lambda: _announced(name, process, log, ready_seconds)


@contextmanager
def guarded_process(command: Sequence[str], **settings: Any) -> "Iterator[subprocess.Popen[bytes]]":
    """Start a process in its own session; it and its group stop when the block ends, or if this process dies.

    A gateway that was left running would keep its journal locked, and a vLLM engine would keep the GPU's memory.
    """
    with process_guard(STOP_SECONDS) as guard:
        process = subprocess.Popen(command, start_new_session=True, **settings)
        guard(process.pid)
        try:
            yield process
        finally:
            stop_process(process)


def free_port() -> int:
    """Find a port that is free on every interface at this moment.

    Linux does not use these ports for outgoing connections; such a connection could take the port while a server
    starts.
    """
    while True:
        port = UNASSIGNED_PORTS.start + secrets.randbelow(len(UNASSIGNED_PORTS))
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("", port))
            return port


def end_with_parent() -> None:
    """Make this child process get SIGTERM when its parent dies, so that it unlocks its journal. Linux only.
    https://man7.org/linux/man-pages/man2/PR_SET_PDEATHSIG.2const.html
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


def _announced(name: str, process: "subprocess.Popen[bytes]", log: Path, seconds: float) -> str:
    """Wait for the line of JSON that a service prints when it listens, and return its URL.

    Raises the service's error if it ended, or an OutageError after `seconds`.
    """
    lines: queue.Queue[bytes] = queue.Queue()
    assert process.stdout is not None
    threading.Thread(target=_drain, args=(process.stdout, lines), daemon=True).start()
    until = time.monotonic() + seconds
    try:
        while line := lines.get(timeout=max(0.0, until - time.monotonic())):
            if line.startswith(b"{"):
                return str(orjson.loads(line)[name])
        code = process.wait(max(0.0, until - time.monotonic()))
    except (queue.Empty, subprocess.TimeoutExpired) as error:
        raise OutageError(*failure_lines(f"was not ready after {seconds:.0f} s", name, log)) from error
    raise error_class_for(code)(*failure_lines("did not start", name, log))


def failure_lines(what: str, name: str, log: Path) -> list[str]:
    """Write the lines of an error message about a service, with the last lines of its log."""
    last_lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()[-LAST_LINES:]
    return [f"The {name} service {what}:", *quoted("\n".join(last_lines))]


def _drain(pipe: IO[bytes], lines: "queue.Queue[bytes]") -> None:
    """Read the service's output until it ends, because a full pipe would stop the service."""
    for line in pipe:
        lines.put(line)
    lines.put(b"")


def stop_process(process: "subprocess.Popen[bytes]") -> None:
    """Stop a process that leads a session: send it SIGTERM, and later SIGKILL to the rest of its process group."""
    try:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            with suppress(subprocess.TimeoutExpired):
                process.wait(STOP_SECONDS)
    finally:  # a second Ctrl-C interrupts only the wait
        with suppress(ProcessLookupError):
            # The process's workers are killed too, because a worker that holds the pipe would block `close` below.
            os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    if process.stdout is not None:
        process.stdout.close()
