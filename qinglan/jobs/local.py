"""Run a command on this machine, log its output line by line, and leave none of its processes running.

code = run_command(Command(["swift", "sft", ...], {"OMP_NUM_THREADS": "1"}), log, on_line=curve.read)
"""

import contextlib
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path

from qinglan.errors import ConfigError, OutageError
from qinglan.files.files import open_private
from qinglan.jobs.interrupts import sigterm_raises
from qinglan.jobs.spec import Command, JobSpec, Outcome
from qinglan.processes.process_guard import process_guard

STOP_SECONDS = 15.0


class LocalRunner:
    """Implementation of the Runner protocol that runs each job as a process on this machine."""

    remote = False

    def attaches(self, spec: JobSpec) -> bool:
        """Return False, because a process of an earlier attempt ended together with its stage."""
        return False

    def run(
        self,
        spec: JobSpec,
        log: Path,
        on_line: Callable[[str], None] = lambda line: None,
        stop: Callable[[], bool] = lambda: False,
    ) -> Outcome:
        """Run the command; an interrupt or SIGTERM ends it with all its processes."""
        if spec.nodes > 1:
            raise ConfigError(
                f"{spec.name} is to run on {spec.nodes} machines, and this is one. "
                "Run the pipeline on a cluster, or take a profile with one node."
            )
        until = time.monotonic() + spec.hours * 3600

        with sigterm_raises():
            code = run_command(spec.command, log, on_line, lambda: stop() or time.monotonic() > until)
        late = code != 0 and time.monotonic() > until
        return Outcome(code, f"it took longer than its {spec.hours:g} hours" if late else "")


def run_command(
    command: Command,
    log: Path,
    on_line: Callable[[str], None] = lambda line: None,
    stop: Callable[[], bool] = lambda: False,
) -> int:
    """Run the command to its end and return its exit code; output goes to `log` and, line by line, to `on_line`.

    `stop` is called twice a second. If it returns True, the command and all processes that it started are ended.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    with process_guard(STOP_SECONDS) as guard:  # a stage that is killed leaves no training on the GPUs
        process = subprocess.Popen(
            command.argv,
            cwd=command.folder,
            env={**os.environ, **command.environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        guard(process.pid)
        # In a separate session Ctrl-C reaches only this process, and the command can be ended with all it started.
        reader = _Reader(process, log, on_line)
        reader.start()
        try:
            # Polling twice a second is cheap beside a training, and needs no signal handler for SIGCHLD.
            while process.poll() is None and reader.error is None:
                if stop():
                    break
                time.sleep(0.5)
        finally:
            # End the process group first, because a worker that still holds the pipe would keep the reader waiting.
            terminate_process_group(process)
            reader.join(STOP_SECONDS)
    if reader.error is not None:
        raise reader.error
    return process.returncode


def terminate_process_group(process: "subprocess.Popen[bytes]") -> None:
    """End the process group of a process: the group gets SIGTERM, and what is left of it gets SIGKILL later."""
    try:
        if process.poll() is None:
            _signal(process.pid, signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(STOP_SECONDS)
    finally:  # a second Ctrl-C interrupts only the wait
        _signal(process.pid, signal.SIGKILL)
    process.wait()


def _signal(group: int, number: signal.Signals) -> None:
    try:
        os.killpg(group, number)
    except ProcessLookupError:
        return


class _Reader(threading.Thread):
    """Thread that reads the command's output, even after an error, because a full pipe would stop the command."""

    def __init__(self, process: "subprocess.Popen[bytes]", log: Path, on_line: Callable[[str], None]) -> None:
        super().__init__(daemon=True)
        self.process, self.log, self.on_line = process, log, on_line
        self.error: Exception | None = None

    def run(self) -> None:
        assert self.process.stdout is not None
        try:
            with self.process.stdout, open_private(self.log, "ab") as file:
                for line in self.process.stdout:
                    file.write(line)
                    file.flush()
                    if self.error is None:
                        try:
                            self.on_line(line.decode("utf-8", "replace").rstrip("\n"))
                        except Exception as error:
                            self.error = error
        except OSError as error:  # run_command raises it: else the command would succeed without its log
            self.error = OutageError(
                f"{self.log}: the log cannot be written ({error.strerror}). Make room on that disk, then run again."
            )
            self.error.__cause__ = error
