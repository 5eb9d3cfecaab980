"""Each stage's own environment on a machine with GPUs and without containers, checked before anything is paid.

A profile that trains on GPUs needs packages that cannot live in one environment (images/README.md). Its stages run in
the environment of their image, made from the image's lock. Stages of the image without torch, and every stage of a
profile that trains on a CPU, run in the environment of `qinglan` itself.
"""

import ctypes
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

from pipelines.execute.environments.environments import ROOT, environment_locks, make_environment
from pipelines.execute.environments.step_imports import step_modules
from pipelines.lines.line import Line, LineConfig
from qinglan.errors import ConfigError
from qinglan.files.files import sha256_text
from qinglan.files.scratch import source_digest
from qinglan.terminal import quoted, say

PRESENT = "cpu"
"""The image whose packages the environment of `qinglan` has."""

STARTED_BY_LIBRARIES = {
    "sft": ("deepspeed",),
    "ppo": ("verl.trainer.main_ppo", "verl.workers.rollout.vllm_rollout.vllm_async_server"),
}
"""Modules of a stage that no code of ours names in a command: a library starts or imports them by a setting."""

COMPILING = frozenset({"ppo", "serve"})
"""Images in which Triton compiles a launcher for each kernel when it first runs it (images/README.md)."""

CHECKED = ".imports-checked"
"""File in an environment's folder, with a digest per line (`imports_state`): with these modules, code, packages and
driver, all imports worked."""

OUR_CODE = ("qinglan", "components", "serving", "standins", "pipelines", "commands")
"""Folders of the checkout whose code runs in these environments."""

LAST_LINES = 12


def prepare_environments(line: Line, config: LineConfig, stages: Sequence[str]) -> dict[str, str]:
    """Make and check the environments of stages that need their own; returns the interpreter of each such stage."""
    images = stage_images(line, config, stages)
    users = {image: [name for name in images if images[name] == image] for image in sorted(set(images.values()))}
    for image, names in users.items():
        if problem := machine_problem(image):
            raise ConfigError(f"{', '.join(names)}: {problem}")
    pythons = {image: make_environment(image) for image in users}

    def check(image: str) -> None:
        modules = {module for name in users[image] for module in needed_modules(line, name, image)}
        check_imports(", ".join(users[image]), pythons[image], sorted(modules))

    # Side by side: three environments that import torch and more take half a minute each.
    with ThreadPoolExecutor() as pool:
        list(pool.map(check, users))
    return {name: str(pythons[image]) for name, image in images.items()}


def stage_images(line: Line, config: LineConfig, stages: Iterable[str]) -> dict[str, str]:
    """The image of each of these stages that does not run in the environment of `qinglan` itself."""
    if not any(stage.resumes and stage.gpus(config) for stage in line.stages.values()):
        return {}
    images = {name: image_name(line.stages[name].load_component()) for name in stages}
    return {name: image for name, image in images.items() if image != PRESENT}


def image_name(component: object) -> str:
    """The folder of images/ that a KFP component's image is built from."""
    full: str = component.component_spec.implementation.container.image  # type: ignore[attr-defined]
    return full.rpartition("/")[2].partition(":")[0]


def needed_modules(line: Line, name: str, image: str) -> set[str]:
    """The modules that a stage's step imports, itself and in the processes that it starts."""
    stage = line.stages[name]
    modules = step_modules(f"{stage.folder}.component", stage.component or stage.name)
    if image != "ppo":  # a job's pods start Ray in that image alone; in the others torchrun joins them
        modules = {module for module in modules if module.split(".")[0] != "ray"}
    return modules | set(STARTED_BY_LIBRARIES.get(name, ()))


def check_imports(names: str, python: Path, modules: Sequence[str]) -> None:
    """Import these modules in the environment, unless nothing has changed since all imports last worked."""
    folder = python.parents[1]
    note, state = folder / CHECKED, imports_state(folder, modules)
    if note.is_file() and state in note.read_text(encoding="utf-8").split():
        return
    say(f"[environment] {names}: imports {len(modules)} modules in {folder.name}", to=sys.stderr)
    command = [str(python), "-m", "pipelines.execute.environments.import_check", *modules]
    # Some libraries ask the hub while they are imported; without a network that takes minutes of retries.
    environment = {**os.environ, "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    again = (
        f"`{python} -m pipelines.execute.environments.import_check NAME` tries again; "
        f"without {folder} the same command makes it anew."
    )
    if done.returncode:  # a library's native code ended the process
        lines = quoted("\n".join(done.stderr.strip().splitlines()[-LAST_LINES:]))
        raise ConfigError(f"{names}: its imports end the interpreter with code {done.returncode}.", *lines, again)
    failed: Mapping[str, str] = json.loads(done.stdout.strip().splitlines()[-1])
    if failed:
        lines = [line for module, error in failed.items() for line in quoted(f"{module}: {error}")]
        raise ConfigError(f"{names}: {len(failed)} modules cannot be imported in {folder.name}.", *lines, again)
    # What an import compiled has changed the folder of packages, so the state is computed again.
    with suppress(OSError), note.open("a", encoding="utf-8") as lines_of_note:
        lines_of_note.write(f"{imports_state(folder, modules)}\n")


def imports_state(folder: Path, modules: Sequence[str]) -> str:
    """Digest of all that decides whether these imports work: the modules, our code, the driver, and the folder of
    packages, which changes when a package is installed or removed."""
    packages = [f"{path} {path.stat().st_mtime_ns}" for path in folder.glob("lib/python*/site-packages")]
    code = [source_digest(ROOT / layer) for layer in OUR_CODE]
    return sha256_text(*modules, *code, *packages, driver_cuda())


def machine_problem(image: str) -> str:
    """Tell why this machine cannot run what an image runs, before its packages are installed; empty if it can."""
    problem = driver_problem(driver_cuda(), locked_cuda(environment_locks(image)[0]))
    if problem or image not in COMPILING:
        return problem
    header = Path(sysconfig.get_path("include")) / "Python.h"
    return compiler_problem(shutil.which("gcc") or shutil.which("cc"), header)


def locked_cuda(lock: Path) -> str:
    """The CUDA that the lock's torch was built for; empty if it has none."""
    match = re.search(r"^cuda-toolkit==(\S+)", lock.read_text(encoding="utf-8"), re.MULTILINE)
    return match[1] if match else ""


def driver_cuda() -> str:
    """The newest CUDA that this machine's driver runs, such as 12.4; empty without a driver."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return ""
    # 1000 * major + 10 * minor (cuDriverGetVersion in NVIDIA's CUDA Driver API).
    version = ctypes.c_int()
    driver.cuDriverGetVersion(ctypes.byref(version))
    return f"{version.value // 1000}.{version.value % 1000 // 10}"


def driver_problem(driver: str, needed: str) -> str:
    """Tell why a driver cannot run a torch; empty if it can. A driver runs every CUDA of its own major release."""
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
