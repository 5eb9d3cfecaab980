"""Pack a small tree with the GPU checks, for a machine with a GPU, torch and transformers, and no network.

    python -m tests.gpu.pack OUT --python 3.12      # the version of that machine
    tar c OUT | ssh MACHINE tar x                   # or however files get there
    cd OUT && python -m tests.gpu

It holds the product's modules that the checks import, and wheels of the packages that such a machine may lack.
"""

import argparse
import shutil
import subprocess
import sys
from pathlib import Path

from qinglan.files.files import atomic_folder
from tests.gpu.wheels import ROOT

MODULES = ("qinglan", "components", "tests/gpu")
WHEELS = (
    "accelerate", "annotated-types", "joblib", "orjson", "peft", "pydantic", "pydantic-core", "scikit-learn", "scipy",
    "threadpoolctl", "typing-inspection", "typing-extensions", "psutil",
)  # fmt: skip
"""Packages beside torch and transformers, at the versions of the lock."""

LIMIT = 64 * 2**20
"""Bytes that the tree may have."""


def pack(out: Path, python: str) -> int:
    """Write the tree; returns its bytes, and refuses more than LIMIT."""
    if out.exists():
        raise SystemExit(f"{out}: is there already. Name a new folder.")
    with atomic_folder(out) as folder:
        for name in MODULES:
            shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__", "*.pyc"))
        (folder / "tests" / "__init__.py").write_text("")
        download(folder / "wheels", python)
        size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
        if size > LIMIT:
            raise SystemExit(f"{out}: {size / 2**20:.1f} MiB, and {LIMIT / 2**20:.0f} are allowed. Leave out wheels.")
    return size


def download(folder: Path, python: str) -> None:
    """Wheels for Linux and this version of Python, by the ordinary client."""
    expected = [line for line in locked_versions() if line.partition("==")[0] in WHEELS]
    command = [
        sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:", "--dest", str(folder),
        "--python-version", python, "--platform", "manylinux2014_x86_64", "--platform", "manylinux_2_28_x86_64",
        "--platform", "manylinux_2_27_x86_64", *expected,
    ]  # fmt: skip
    if subprocess.run(command, check=False).returncode:
        raise SystemExit(
            f"pip has no wheels for Python {python}; its words are above. Give --python the version of that machine, "
            "3.11 or newer: `python3 --version` there shows it."
        )


def locked_versions() -> list[str]:
    """Each package of the lock as name==version."""
    lines = (ROOT / "requirements.lock").read_text(encoding="utf-8").splitlines()
    return [line.split()[0] for line in lines if "==" in line and not line.startswith((" ", "#"))]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m tests.gpu.pack", description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--python", default="3.12", help="that machine's version")
    arguments = parser.parse_args()
    size = pack(arguments.out, arguments.python)
    print(f"{arguments.out}: {size / 2**20:.1f} MiB. There: cd {arguments.out.name} && python -m tests.gpu")
