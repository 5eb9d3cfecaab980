"""Checks of this machine: Python, memory, disk, GPUs, signing keys."""

import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from pipelines.checks.checks import Check
from pipelines.checks.sizing.check import free_bytes
from pipelines.execute.environments.stage_environments import driver_cuda
from qinglan.lineage.signing.keys import keys_folder
from qinglan.sizing.constants import GB
from qinglan.sizing.host_memory import host_bytes

LEAST_DISK_GB, LEAST_MEMORY_GB = 10.0, 8.0
"""Least GB of free disk, and of memory, for a whole run of the laptop profile with its environment."""

PROXIES = {"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"}


def machine_checks(folder: Path) -> Iterator[Check]:
    yield python_check(sys.version_info[:2])
    yield room_check(host_bytes() / GB, free_bytes(folder) / GB, os.cpu_count() or 1, folder)
    yield gpu_check(driver_cuda())
    yield proxy_check(os.environ)
    yield keys_check(keys_folder())


def python_check(version: tuple[int, int]) -> Check:
    named = ".".join(map(str, version))
    if version == (3, 11):
        return Check("ok", "python", f"version {named}.")
    return Check(
        "error", "python", f"version {named}; the locked packages are for 3.11.", "make PYTHON=python3.11 (README)"
    )


def room_check(memory: float, disk: float, cores: int, folder: Path) -> Check:
    """Check memory and disk for the laptop profile; `qinglan fit` covers profiles with GPUs."""
    what = f"{cores} cores, {memory:.0f} GB of memory, {disk:.1f} GB free where {folder} will be."
    if disk < LEAST_DISK_GB:
        return Check("error", "room", what, f"Make room: {LEAST_DISK_GB:g} GB, or give --out on another disk.")
    if memory < LEAST_MEMORY_GB:
        return Check("warning", "room", what, f"The laptop profile's run needs {LEAST_MEMORY_GB:g} GB of memory.")
    return Check("ok", "room", what)


def gpu_check(cuda: str) -> Check:
    if cuda:
        return Check("ok", "GPU", f"NVIDIA's driver runs CUDA {cuda}.")
    return Check("ok", "GPU", "none; `training: laptop` and `cpu` need none.")


def proxy_check(environment: Mapping[str, str]) -> Check:
    """Warn of a proxy in the environment, because Qinglan's calls do not use it (qinglan/http/http_client.py)."""
    named = sorted(name for name in environment if name.upper() in PROXIES and environment[name])
    if not named:
        return Check("ok", "proxy", "none is set; calls go straight to their addresses.")
    return Check(
        "warning", "proxy", f"{', '.join(named)}: no call of Qinglan goes through it.",
        "If the internet can be reached only through it, set base_url to your company's relay of the model "
        "(docs/rag-contract.md).",
    )  # fmt: skip


def keys_check(folder: Path) -> Check:
    if (folder / "builder.pem").is_file():
        return Check("ok", "signing", f"keys are in {folder}.")
    return Check("ok", "signing", f"no keys in {folder}; the first run makes them.")
