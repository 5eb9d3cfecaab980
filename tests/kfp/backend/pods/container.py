"""A container as a process of this machine: mount and PID namespaces of its own, the network shared.

This is no security boundary: a container runs as root and reads the machine's files. The PID namespace is needed:
Argo's executor may signal every process that it can reach.
"""

import ctypes
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

ENTER = Path(__file__).with_name("enter.sh")
START = """
import json, os, sys
root = sys.argv[1]
spec = json.load(open(root + "/spec.json"))
os.chroot(root + "/root")
os.chdir(spec["folder"])
try:
    os.execvpe(spec["command"][0], spec["command"], spec["environment"])
except OSError as error:
    print(spec["command"][0], error, file=sys.stderr)
    os._exit(127)
"""
PR_SET_PDEATHSIG = 1


class Process(NamedTuple):
    """All that a container's process needs."""

    command: Sequence[str]
    environment: Mapping[str, str]
    folder: str
    hosts: str
    mounts: Sequence[tuple[Path, str]]
    """Each a path of this machine and one in the container."""


def start(root: Path, process: Process) -> "subprocess.Popen[bytes]":
    """Start it; its output goes to ROOT/log. It ends with the thread that started it."""
    for name in ("upper/etc", "work", "root"):
        (root / name).mkdir(parents=True)
    (root / "upper" / "etc" / "hosts").write_text(process.hosts)
    (root / "mounts").write_text("".join(f"{source}\t{target}\n" for source, target in process.mounts))
    spec = {"command": process.command, "environment": process.environment, "folder": process.folder}
    (root / "spec.json").touch(mode=0o600)
    (root / "spec.json").write_text(json.dumps(spec))
    enter = ["sh", str(ENTER), str(root), sys.executable, START]
    with (root / "log").open("ab") as log:
        return subprocess.Popen(
            ["unshare", "--mount", "--pid", "--fork", "--kill-child=KILL", *enter],
            stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd="/", env={"PATH": os.environ["PATH"]},
            start_new_session=True, preexec_fn=_killed_with_parent,
        )  # fmt: skip


def _killed_with_parent() -> None:
    """`unshare` ignores SIGTERM; when it is killed, so is the container, and with it all that it started."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def terminate(process: "subprocess.Popen[bytes]") -> None:
    """Send SIGTERM to the container's first process: `unshare`, its parent, ignores it."""
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    with suppress(OSError):
        for child in children.read_text().split():
            os.kill(int(child), signal.SIGTERM)


def kill(process: "subprocess.Popen[bytes]") -> None:
    if process.poll() is None:
        process.kill()


def clear(root: Path) -> None:
    """Delete what an ended container wrote over the machine's files; its log stays."""
    for name in ("upper", "work", "spec.json"):
        path = root / name
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)
