"""The folder of a long training's checkpoints: it outlives the process and is named by the training's inputs.

The key holds everything that decides the result, the code too, so that nothing stale is ever resumed.
"""

import os
import shutil
from pathlib import Path

import orjson

from qinglan.files.files import cache_folder, first_folder, sha256_file, sha256_text

SCRATCH_VARIABLE = "QINGLAN_SCRATCH"
"""Environment variable with the folder of checkpoints: the run's own folder, on a cluster a mounted volume."""


def scratch_folder(stage: str, *parts: str) -> Path:
    """The folder of this training only; it exists already if the training was begun before."""
    folder = _root() / stage / sha256_text(*parts)[:24]
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def copy_to_scratch(path: Path, digest: str) -> Path:
    """Copy a file or folder, once, to where the pods of a job see it; the copy's path.

    Steps of other runs may copy the same at the same time, from other machines.
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
    """The absolute path of all scratch folders: a training runs in another working folder."""
    return Path(os.environ.get(SCRATCH_VARIABLE) or cache_folder("scratch")).resolve()


def source_digest(folder: Path) -> str:
    """Digest of the Python files in a folder and below; another digest may mean another result."""
    files = sorted(folder.rglob("*.py"))
    return sha256_text(*(f"{path.relative_to(folder).as_posix()} {sha256_file(path)}" for path in files))


def last_checkpoint(folder: Path) -> Path | None:
    """The newest whole checkpoint."""
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
