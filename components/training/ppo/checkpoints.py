"""Handle verl's checkpoints: find the latest, keep the best, and read weights in the precision of their training.

checkpoints/global_step_12/actor/model_world_size_1_rank_0.pt ... fsdp_config.json lora_train_meta.json
"""

import os
import shutil
from pathlib import Path
from typing import Any

import orjson

from qinglan.errors import TrainingError
from qinglan.files.files import atomic_folder

LATEST = "latest_checkpointed_iteration.txt"
STEP = "step.txt"


def latest_step(checkpoints: Path) -> int:
    """Return the step from which verl resumes; 0 if it starts from the beginning."""
    try:
        return int((checkpoints / LATEST).read_text())
    except (FileNotFoundError, ValueError):
        return 0


def actor_folder(checkpoints: Path, step: int) -> Path:
    return checkpoints / f"global_step_{step}" / "actor"


def keep_best(checkpoints: Path, step: int, target: Path) -> None:
    """Keep this step's actor as the best, by hard links, which need no space and outlive verl's checkpoint."""
    try:
        with atomic_folder(target) as partial:
            shutil.copytree(actor_folder(checkpoints, step), partial / "actor", copy_function=os.link)
            (partial / STEP).write_text(str(step))
    except FileNotFoundError as error:
        raise TrainingError(
            f"The checkpoint of step {step}, the best so far, was deleted before it could be kept: the training goes "
            "on too fast for so few checkpoints on disk. Raise ppo.keep, or lower ppo.validations."
        ) from error


def best_checkpoint_step(best: Path) -> int:
    path = best / STEP
    return int(path.read_text()) if path.is_file() else 0


def read_weights(folder: Path, only: str = "") -> dict[str, Any]:
    """Read the actor's tensors by name, joined if they were sharded. `only` selects names with this text."""
    size = orjson.loads((folder / "fsdp_config.json").read_bytes())["world_size"]
    shards = [_load(folder / f"model_world_size_{size}_rank_{rank}.pt") for rank in range(size)]
    names = [name for name in shards[0] if only in name]
    return {name: _whole([shard[name] for shard in shards], name) for name in names}


def lora_scale(folder: Path) -> float:
    meta = orjson.loads((folder / "lora_train_meta.json").read_bytes())
    return float(meta["lora_alpha"]) / float(meta["r"])


def _load(path: Path) -> dict[str, Any]:
    import torch

    try:
        # Our own training wrote it, with sharded tensors, which weights_only refuses.
        # https://docs.pytorch.org/docs/stable/notes/serialization.html
        loaded: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=False, mmap=True)
    except (OSError, RuntimeError, EOFError) as error:
        raise TrainingError(f"{path}: this checkpoint cannot be read ({error}). Run the stage again.") from error
    return loaded


def _whole(parts: list[Any], name: str) -> Any:
    import torch
    from torch.distributed.tensor import DTensor

    if not isinstance(parts[0], DTensor):
        return parts[0]
    # FSDP2 shards each tensor along one dimension: https://docs.pytorch.org/docs/stable/distributed.tensor.html
    placement: Any = parts[0].placements[-1]
    locals_ = [part._local_tensor for part in parts]
    if placement.is_replicate():
        return locals_[0]
    if not placement.is_shard():
        raise TrainingError(f"checkpoint: {name} is placed as {placement}, which cannot be put together here.")
    return torch.cat(locals_, dim=placement.dim)
