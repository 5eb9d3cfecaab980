"""Each stage's own environment on a machine with GPUs and without containers, checked before anything is paid.

A profile that trains on GPUs needs packages that cannot live in one environment (images/README.md). Its stages run in
the environment of their image, made from the image's lock. Stages of the image without torch, and every stage of a
profile that trains on a CPU, run in the environment of `qinglan` itself.
"""

import ctypes
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from pipelines.execute.environments.environments import environment_locks, make_environment
from pipelines.lines.line import Line, LineConfig
from qinglan.errors import ConfigError
from qinglan.terminal import quoted, say

PRESENT = "cpu"
"""The image whose packages the environment of `qinglan` has."""

IMPORTED = {
    "sft": ("swift.cli.sft", "deepspeed"),
    "ppo": ("verl.trainer.main_ppo", "verl.workers.rollout.vllm_rollout.vllm_async_server"),
    "serve": ("vllm.entrypoints.openai.api_server",),
    "style": ("torch", "transformers"),
}
"""Modules of each image whose import loads all that its steps need on a machine, such as a driver's libraries."""

COMPILING = frozenset({"ppo", "serve"})
"""Images in which Triton compiles a launcher for each kernel when it first runs it (images/README.md)."""

CHECKED = ".imports-checked"
"""File in an environment's folder: the imports worked once."""

LAST_LINES = 12


def prepare_environments(line: Line, config: LineConfig, stages: Sequence[str]) -> dict[str, str]:
    """Make and check the environments of stages that need their own; returns the interpreter of each such stage."""
    images = stage_images(line, config, stages)
    for name, image in images.items():
        if problem := machine_problem(image):
            raise ConfigError(f"{name}: {problem}")
    pythons = {image: make_environment(image) for image in sorted(set(images.values()))}
    # Side by side: three environments that import torch and more take half a minute each.
    with ThreadPoolExecutor() as pool:
        list(pool.map(check_imports, pythons, pythons.values()))
    return {name: str(pythons[image]) for name, image in images.items()}


def stage_images(line: Line, config: LineConfig, stages: Iterable[str]) -> dict[str, str]:
    """Return the image of each stage that does not run in the environment of `qinglan` itself, by stage."""
    if not any(stage.resumes and stage.gpus(config) for stage in line.stages.values()):
        return {}
    images = {name: image_name(line.stages[name].load_component()) for name in stages}
    return {name: image for name, image in images.items() if image != PRESENT}


def image_name(component: object) -> str:
    """Return the name of the folder in images/ from which a KFP component's image is built."""
    full: str = component.component_spec.implementation.container.image  # type: ignore[attr-defined]
    return full.rpartition("/")[2].partition(":")[0]


def check_imports(image: str, python: Path) -> None:
    """Import the image's modules in a new environment, to find a missing library before anything is paid."""
    folder = python.parents[1]
    if (folder / CHECKED).is_file():
        return
    say(f"[environment] tries the imports of {folder.name}", to=sys.stderr)
    # Some libraries ask the hub while they are imported; without a network that takes minutes of retries.
    environment = {**os.environ, "HF_HUB_OFFLINE": "1"}
    command = [str(python), "-c", "import " + ", ".join(IMPORTED[image])]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    if done.returncode:  # an import failed, or a library's native code ended the process
        lines = quoted("\n".join(done.stderr.strip().splitlines()[-LAST_LINES:]))
        raise ConfigError(f"{', '.join(IMPORTED[image])} cannot be imported in {folder}.", *lines)
    (folder / CHECKED).touch()


def machine_problem(image: str) -> str:
    """Tell, before an image's packages are installed, why this machine cannot run its steps; empty if it can."""
    problem = driver_problem(driver_cuda(), locked_cuda(environment_locks(image)[0]))
    if problem or image not in COMPILING:
        return problem
    header = Path(sysconfig.get_path("include")) / "Python.h"
    return compiler_problem(shutil.which("gcc") or shutil.which("cc"), header)


def locked_cuda(lock: Path) -> str:
    """Return the CUDA version for which the lock's torch was built; empty if there is none."""
    match = re.search(r"^cuda-toolkit==(\S+)", lock.read_text(encoding="utf-8"), re.MULTILINE)
    return match[1] if match else ""


def driver_cuda() -> str:
    """Return the newest CUDA version that this machine's driver runs, such as 12.4; empty without a driver."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return ""
    # 1000 * major + 10 * minor (cuDriverGetVersion in NVIDIA's CUDA Driver API).
    version = ctypes.c_int()
    driver.cuDriverGetVersion(ctypes.byref(version))
    return f"{version.value // 1000}.{version.value % 1000 // 10}"


def driver_problem(driver: str, needed: str) -> str:
    """Tell why a driver cannot run a torch built for CUDA `needed`; empty if it can. A driver runs every CUDA of its
    own major release."""
    if not needed or (driver and int(driver.partition(".")[0]) >= int(needed.partition(".")[0])):
        return ""
    major = needed.partition(".")[0]
    state = f"runs CUDA {driver} at most" if driver else "does not answer (libcuda.so.1 is missing)"
    return (
        f"NVIDIA's driver is too old: it {state}, and the locked torch was built for CUDA {needed}. Install a driver "
        f"for CUDA {major} or newer; `nvidia-smi` shows the version in its first line."
    )


def compiler_problem(compiler: str | None, header: Path) -> str:
    """Tell why Triton could not compile its launchers; empty if it can."""
    if compiler is None:
        return "There is no C compiler, which Triton needs for its kernels. Install gcc and the headers of libc."
    if not header.is_file():
        return f"{header} is missing, which Triton needs for its kernels. Install Python's headers (python3.11-dev)."
    return ""
