"""The critic's first weights: the student's own, and a head that says 0 of everything.

transformers would draw the head at random. In a model whose weights are spread wide, its first values are then
larger than the rewards: the advantages are noise, and the policy unlearns for as long as the critic needs to settle.
"""

import os
from pathlib import Path

import orjson

HEAD = "value-head.safetensors"
INDEX = "model.safetensors.index.json"


def prepare_critic(model: Path, folder: Path) -> Path:
    """A folder beside the model's that borrows all of its files by links, and adds the head."""
    from safetensors import safe_open
    from safetensors.torch import save_file

    folder.mkdir(parents=True, exist_ok=True)
    places: dict[str, str] = {}
    head = None
    for path in sorted(path for path in model.iterdir() if path.is_file() and path.name != INDEX):
        # Under its own name a single file would be loaded without looking at the index.
        link = folder / (f"policy-{path.name}" if path.suffix == ".safetensors" else path.name)
        link.unlink(missing_ok=True)
        link.symlink_to(os.path.realpath(path))
        if path.suffix != ".safetensors":
            continue
        with safe_open(path, framework="pt") as weights:
            places |= dict.fromkeys(weights.keys(), link.name)
            if "model.embed_tokens.weight" in places and head is None:
                embedding = weights.get_slice("model.embed_tokens.weight")
                head = _zeros(embedding.get_shape()[1], str(embedding.get_dtype()))
    if head is not None and "score.weight" not in places:  # a model that was a critic before keeps what it knows
        save_file(head, folder / HEAD, metadata={"format": "pt"})
        places |= dict.fromkeys(head, HEAD)
    (folder / INDEX).write_bytes(orjson.dumps({"metadata": {}, "weight_map": places}))
    return folder


def _zeros(width: int, dtype: str) -> dict[str, object]:
    import torch

    kind = {"BF16": torch.bfloat16, "F16": torch.float16}.get(dtype, torch.float32)
    return {"score.weight": torch.zeros(1, width, dtype=kind), "score.bias": torch.zeros(1, dtype=kind)}
