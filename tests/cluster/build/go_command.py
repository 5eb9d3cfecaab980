"""The Go command, and other builders: their output goes into a log, and its last lines into an error."""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from qinglan.errors import ConfigError, QinglanError
from qinglan.processes.services import end_with_parent
from serving.programs import exit_on_error

MODULES = Path(__file__).parent / "go"
LAST_LINES = 12
BUILD_SECONDS = 3600.0
"""Limit of one build. Go itself has none, even for a module proxy that never answers."""


@contextmanager
def exits_with_a_code() -> Iterator[None]:
    """End a program with the code of a QinglanError, of SIGTERM or of Ctrl-C, after its own cleanup."""
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    try:
        with exit_on_error():
            yield
    except KeyboardInterrupt as error:
        raise SystemExit(130) from error


def go(what: str, arguments: Sequence[str], folder: Path, log: Path, **settings: str) -> None:
    log.parent.mkdir(parents=True, exist_ok=True)
    build(what, [program(what), *arguments], log, cwd=folder, env={**os.environ, "GOWORK": "off", **settings})


def build(what: str, command: list[str], log: Path, **options: Any) -> None:
    """Run a builder to its end; raise a QinglanError with its last lines if it fails."""
    print(f"[{what}] {' '.join(command[:2])}; its output: {log}", flush=True)
    with log.open("ab") as log_file, child(command, log_file, **options) as process:
        code = process.wait(BUILD_SECONDS)
    if code != 0:
        last = log.read_text(errors="replace").splitlines()[-LAST_LINES:]
        raise QinglanError("\n".join([f"{what}: {' '.join(command)} failed:", *last]))


@contextmanager
def child(command: list[str], log: IO[bytes], **options: Any) -> Iterator["subprocess.Popen[bytes]"]:
    """A process that is killed at the end of the block, with the compilers that it has started."""
    process = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
        preexec_fn=end_with_parent, **options,
    )  # fmt: skip
    try:
        yield process
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def folder_of(module: str, pinned: Path) -> Path:
    """Return the folder of a Go module that go.mod in `pinned` names; download a missing one and check its sum."""
    command = [program(module), "mod", "download", "-json", module]
    environment = {**os.environ, "GOWORK": "off"}
    done = subprocess.run(command, cwd=pinned, capture_output=True, text=True, env=environment, timeout=BUILD_SECONDS)
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
