"""A command on this machine: its output kept and read line by line, and nothing of it left when it ends.

code = run(Command(["swift", "sft", ...], {"OMP_NUM_THREADS": "1"}), log, on_line=curve.read)
"""

import contextlib
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

STOP_SECONDS = 15.0


class Command(NamedTuple):
    argv: Sequence[str]
    environment: Mapping[str, str] = {}
    """On top of this process's own."""

    folder: Path | None = None
    """Where it runs."""


def run(
    command: Command,
    log: Path,
    on_line: Callable[[str], None] = lambda line: None,
    stop: Callable[[], bool] = lambda: False,
) -> int:
    """Run it to its end and give its exit code; its output goes to `log` and, line by line, to `on_line`.

    `stop` is asked twice a second: True ends the command early, with all that it started.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    process = subprocess.Popen(
        command.argv, cwd=command.folder, env={**os.environ, **command.environment},
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True,
    )  # fmt: skip
    reader = threading.Thread(target=_read, args=(process, log, on_line), daemon=True)
    reader.start()
    try:
        while process.poll() is None:
            if stop():
                break
            time.sleep(0.5)
    finally:
        end_group(process)
        reader.join(STOP_SECONDS)
    return process.returncode


def end_group(process: "subprocess.Popen[bytes]") -> None:
    """End a process and what it started in its group: politely, then for good."""
    if process.poll() is None:
        _signal(process.pid, signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(STOP_SECONDS)
    _signal(process.pid, signal.SIGKILL)
    process.wait()


def _signal(group: int, number: signal.Signals) -> None:
    try:
        os.killpg(group, number)
    except ProcessLookupError:
        return


def _read(process: "subprocess.Popen[bytes]", log: Path, on_line: Callable[[str], None]) -> None:
    assert process.stdout is not None
    with process.stdout, log.open("ab") as kept:
        for line in process.stdout:
            kept.write(line)
            kept.flush()
            on_line(line.decode("utf-8", "replace").rstrip("\n"))
