"""The servers that the cluster's tests run against, built from their Go modules once and kept.

    python tests/cluster/binaries.py      builds what is missing, with its progress

A binary is kept under the digest of its go.mod and go.sum, so another version is another binary.
"""

import fcntl
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from qinglan.errors import ConfigError, QinglanError
from qinglan.files import cache_folder, replaced, sha256_file, sha256_text
from qinglan.services import end_with_parent

MODULES = Path(__file__).parent / "go"
PACKAGES = {"minio": "github.com/minio/minio"}
AT_ONCE = 2
LAST_LINES = 12
EVERY_SECONDS = 5.0


def binary(name: str) -> Path:
    """The program, built now if it was not before."""
    target = kept_at(name)
    with _alone(target.parent):
        if not target.exists():
            _build(name, target)
    return target


def kept_at(name: str) -> Path:
    module = MODULES / name
    pinned = sha256_text(sha256_file(module / "go.mod"), sha256_file(module / "go.sum"))
    return cache_folder("cluster") / f"{name}-{pinned[:16]}" / name


def _build(name: str, target: Path) -> None:
    go = shutil.which("go")
    if go is None:
        raise ConfigError(
            f"{name} is built from its Go module, and there is no `go` on the PATH. "
            f"Install Go ({_go_version(name)} or newer), or leave these tests out: `make test` needs none of it."
        )
    command = [go, "build", "-v", "-p", str(AT_ONCE), "-ldflags=-s -w"]
    log = target.with_name("build.log")
    with replaced(target) as partial, log.open("wb") as said:
        process = subprocess.Popen(
            [*command, "-o", str(partial), PACKAGES[name]],
            cwd=MODULES / name, stderr=said, preexec_fn=end_with_parent,
        )  # fmt: skip
        _watch(name, process, log)
        if process.returncode != 0:
            last = log.read_text(errors="replace").splitlines()[-LAST_LINES:]
            raise QinglanError("\n".join([f"{name} was not built by {' '.join(command)}:", *last]))


def _watch(name: str, process: "subprocess.Popen[bytes]", log: Path) -> None:
    """A line every few seconds, though go says nothing for a minute while it links."""
    began = time.monotonic()
    while process.poll() is None:
        with suppress(subprocess.TimeoutExpired):
            process.wait(EVERY_SECONDS)
        lines = log.read_text(errors="replace").splitlines()
        last = f", {lines[-1]}" if lines else ""
        print(f"[build {name}] {time.monotonic() - began:.0f} s, {len(lines)} packages{last}", flush=True)


def _go_version(name: str) -> str:
    lines = (MODULES / name / "go.mod").read_text().splitlines()
    return next(line.removeprefix("go ") for line in lines if line.startswith("go "))


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """One builder at a time: a second one waits, and finds the binary."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def main() -> None:
    began = time.monotonic()
    cached = all(kept_at(name).exists() for name in PACKAGES)
    try:
        for name in PACKAGES:
            binary(name)
    except QinglanError as error:
        print(error, file=sys.stderr)
        raise SystemExit(error.exit_code) from None
    print("cluster binaries: " + ("cached" if cached else f"built in {time.monotonic() - began:.0f} s"), flush=True)


if __name__ == "__main__":
    main()
