"""Folders for the checkpoints of long trainings. They outlive the process, and are named by a digest of the inputs.

The inputs include everything that decides the result, also the code, so that a training never resumes from a
checkpoint that was made from other inputs.
"""

import os
import shutil
from pathlib import Path

import orjson

from qinglan.files.files import cache_folder, first_folder, sha256_file, sha256_text

SCRATCH_VARIABLE = "QINGLAN_SCRATCH"
"""Environment variable with the folder of checkpoints, which is in the run's folder or, on a cluster, on a mounted
volume."""


def scratch_folder(stage: str, *parts: str) -> Path:
    """Return the checkpoint folder of a stage's training, whose inputs are `parts`. It is created if it is
    missing."""
    folder = _root() / stage / sha256_text(*parts)[:24]
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def copy_to_scratch(path: Path, digest: str) -> Path:
    """Copy a file or folder once to the scratch folder, which all pods of a job see, and return the copy's path.

    Runs on other machines may copy the same input at the same time. A path that is already in the scratch folder is
    returned as it is.
    """
    path, root = path.resolve(), _root()
    if path.is_relative_to(root):
        return path
    target = root / "inputs" / digest[:24]
    if not target.exists():
        with first_folder(target) as partial:
            (shutil.copytree if path.is_dir() else shutil.copyfile)(path, partial / path.name)
    return target / path.name


def _root() -> Path:
    """Return the parent of all scratch folders. The path is absolute, because a training runs in another working
    folder."""
    return Path(os.environ.get(SCRATCH_VARIABLE) or cache_folder("scratch")).resolve()


def source_digest(folder: Path) -> str:
    """Return one digest of all Python files in a folder and its subfolders. It changes if any of them changes."""
    files = sorted(folder.rglob("*.py"))
    return sha256_text(*(f"{path.relative_to(folder).as_posix()} {sha256_file(path)}" for path in files))


def last_checkpoint(folder: Path) -> Path | None:
    """Return the newest complete checkpoint in a folder; None without one."""
    whole = [path for path in folder.glob("checkpoint-*") if _is_whole(path)]
    return max(whole, key=lambda path: int(path.name.rpartition("-")[2]), default=None)


def _is_whole(checkpoint: Path) -> bool:
    # The trainer writes its state last, so a kill leaves it missing or cut off (transformers/trainer.py,
    # _save_checkpoint).
    try:
        orjson.loads((checkpoint / "trainer_state.json").read_bytes())
    except (FileNotFoundError, NotADirectoryError, orjson.JSONDecodeError):
        return False
    return True
