"""The Go command: what it says goes to a log, how far it is to the screen, and what it could not do into an error."""

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any, NamedTuple

from qinglan.errors import ConfigError, QinglanError
from qinglan.processes.services import end_with_parent

MODULES = Path(__file__).parent / "go"
LAST_LINES = 12
EVERY_SECONDS = 5.0
STOPS = {signal.SIGINT, signal.SIGTERM}
LOADING_SECONDS = 1200.0
"""Go itself waits for ever for a module proxy that took its call and says nothing."""

DOWNLOADS_AT_ONCE = 8
"""Go loads as many modules at a time as it has processors, and here the network is what it waits for."""

SILENT_PROXY = "does the module proxy answer (`go env GOPROXY`)? What was loaded is kept: run the same command again."


class Run(NamedTuple):
    what: str
    command: list[str]
    process: "subprocess.Popen[bytes]"
    log: Path

    def lines(self) -> list[str]:
        return self.log.read_text(errors="replace").splitlines()


def go(what: str, arguments: Sequence[str], folder: Path, log: Path, **settings: str) -> None:
    """Run it to its end, with a line every few seconds: go says nothing for a minute while it links."""
    began = time.monotonic()
    with started(what, arguments, folder, log, **settings) as run:
        while run.process.poll() is None:
            with suppress(subprocess.TimeoutExpired):
                run.process.wait(EVERY_SECONDS)
            lines = run.lines()
            last = f", {lines[-1]}" if lines else ""
            print(f"[{what}] {time.monotonic() - began:.0f} s, {len(lines)} packages{last}", flush=True)
        check(run)


def go_together(runs: list[Run]) -> None:
    """Wait for all of them, with a line as each ends."""
    began = time.monotonic()
    waiting = list(runs)
    while waiting:
        with suppress(subprocess.TimeoutExpired):
            waiting[0].process.wait(EVERY_SECONDS)
        for run in [run for run in waiting if run.process.poll() is not None]:
            waiting.remove(run)
            check(run)
            loaded = sum("downloading" in line for line in run.lines())
            print(f"[{run.what}] {time.monotonic() - began:.0f} s, {loaded} modules loaded", flush=True)
        if waiting:
            names = ", ".join(run.what for run in waiting)
            print(f"{time.monotonic() - began:.0f} s, still: {names}", flush=True)
            if time.monotonic() - began > LOADING_SECONDS:
                raise QinglanError(f"{names}: not loaded within {LOADING_SECONDS:.0f} s; {SILENT_PROXY}")


@contextmanager
def started(what: str, arguments: Sequence[str], folder: Path, log: Path, **settings: str) -> Iterator[Run]:
    command = [program(what), *arguments]
    log.parent.mkdir(parents=True, exist_ok=True)
    environment = {**os.environ, "GOWORK": "off", **settings}
    with log.open("wb") as log_file, child(command, log_file, cwd=folder, env=environment) as process:
        yield Run(what, command, process, log)


@contextmanager
def child(command: list[str], log: IO[bytes], **options: Any) -> Iterator["subprocess.Popen[bytes]"]:
    """A process that is killed at the end of the block, with the compilers that it has started."""

    def alone() -> None:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, STOPS)
        end_with_parent()

    # Ctrl-C waits while the process starts: before it is known here, nobody could end it.
    signal.pthread_sigmask(signal.SIG_BLOCK, STOPS)
    process = None
    try:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True, preexec_fn=alone,
            **options,
        )  # fmt: skip
        signal.pthread_sigmask(signal.SIG_UNBLOCK, STOPS)
        yield process
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, STOPS)
        if process is not None and process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def check(run: Run) -> None:
    if run.process.returncode != 0:
        raise QinglanError("\n".join([f"{run.what}: {' '.join(run.command)} failed:", *run.lines()[-LAST_LINES:]]))


def folder_of(module: str, pinned: Path) -> Path:
    """Return the folder of a Go module that go.mod in `pinned` names; download a missing one and check its sum."""
    command = [program(module), "mod", "download", "-json", module]
    environment = {**os.environ, "GOWORK": "off"}
    try:
        done = subprocess.run(
            command, cwd=pinned, capture_output=True, text=True, env=environment, timeout=LOADING_SECONDS
        )
    except subprocess.TimeoutExpired as error:
        raise QinglanError(f"{module}: not loaded within {LOADING_SECONDS:.0f} s; {SILENT_PROXY}") from error
    output = {line.split('"')[1]: line.split('"')[3] for line in done.stdout.splitlines() if line.count('"') >= 4}
    if done.returncode != 0 or "Dir" not in output:
        raise QinglanError(
            f"{module}: its Go module could not be loaded: {output.get('Error') or done.stderr.strip()}"
        )
    return Path(output["Dir"])


def program(what: str) -> str:
    result = shutil.which("go")
    if result is None:
        raise ConfigError(
            f"{what}: it is built from its Go module, and there is no `go` on the PATH. "
            f"Install Go {_newest()} or newer, or leave these tests out: `make test` needs none of it."
        )
    return result


def _newest() -> str:
    lines = [line for each in MODULES.glob("*/go.mod") for line in each.read_text().splitlines()]
    return max(line.removeprefix("go ") for line in lines if line.startswith("go "))
