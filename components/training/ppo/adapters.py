"""Combine the LoRA adapters of SFT and PPO, so that the served model is the trained one.

SFT's adapter is merged into the weights before PPO trains its own adapter on them. PPO's adapter on the base model
would therefore be another model. A release has merged weights, or one adapter for the base that equals both adapters,
with the base's digest. LoRA: https://arxiv.org/abs/2106.09685
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import orjson

from qinglan.files.files import write_atomically

WEIGHTS, CONFIG = "adapter_model.safetensors", "adapter_config.json"
Tensors = dict[str, Any]


def merge_adapter(weights: Mapping[str, Any], adapter: Mapping[str, Any], scale: float) -> Tensors:
    """Return the weights with scale * B @ A added, computed in double precision and rounded once."""
    out = dict(weights)
    for name, (down, up) in lora_pairs(adapter).items():
        added = scale * (up.double() @ down.double())
        out[name] = (out[name].double() + added).to(out[name].dtype)
    return out


def concatenate_adapters(first: tuple[Tensors, float], second: tuple[Tensors, float]) -> Tensors:
    """Return one adapter of scale 1 that equals the sum of two adapters.

    s1 * B1 @ A1 + s2 * B2 @ A2 = [s1 * B1, s2 * B2] @ [A1; A2]: the ranks are concatenated.
    """
    import torch

    sides = [(lora_pairs(adapter), scale) for adapter, scale in (first, second)]
    out: Tensors = {}
    for name in sorted({name for pairs, _ in sides for name in pairs}):
        matrices = [(*pairs[name], scale) for pairs, scale in sides if name in pairs]
        prefix = f"base_model.model.{name.removesuffix('.weight')}"
        out[f"{prefix}.lora_A.weight"] = torch.cat([down for down, _, _ in matrices], dim=0).contiguous()
        out[f"{prefix}.lora_B.weight"] = torch.cat([up * scale for _, up, scale in matrices], dim=1).contiguous()
    return out


def lora_pairs(adapter: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Return the matrices A (down) and B (up) of an adapter, by the name of the weight that they change."""
    out = {}
    for name, down in adapter.items():
        if ".lora_A." in name:
            up = adapter[name.replace(".lora_A.", ".lora_B.")]
            out[f"{name.split('.lora_A.')[0].removeprefix('base_model.model.')}.weight"] = (down, up)
    return out


def read_adapter(folder: Path) -> tuple[Tensors, float]:
    from safetensors.torch import load_file

    config = orjson.loads((folder / CONFIG).read_bytes())
    return dict(load_file(folder / WEIGHTS)), config["lora_alpha"] / config["r"]


def write_adapter(folder: Path, adapter: Tensors, base: str) -> None:
    """Write an adapter of scale 1 in PEFT's format. Modules of a lower rank are padded with zeros.

    `base` is the digest of the weights to which the adapter belongs.
    """
    import torch
    from safetensors.torch import save_file

    rank = max(down.shape[0] for down, _ in lora_pairs(adapter).values())
    for name, tensor in list(adapter.items()):
        side, shape = (0 if ".lora_A." in name else 1), list(tensor.shape)
        if missing := rank - shape[side]:
            shape[side] = missing
            adapter[name] = torch.cat([tensor, tensor.new_zeros(shape)], dim=side)
    folder.mkdir(parents=True, exist_ok=True)
    save_file(adapter, folder / WEIGHTS, metadata={"format": "pt", "base_sha256": base})
    modules = sorted({name.removesuffix(".weight").rpartition(".")[2] for name in lora_pairs(adapter)})
    config = {
        "peft_type": "LORA", "task_type": "CAUSAL_LM", "r": rank, "lora_alpha": rank, "lora_dropout": 0.0,
        "bias": "none", "fan_in_fan_out": False, "target_modules": modules, "inference_mode": True,
        "base_model_name_or_path": f"sha256:{base}",
    }  # fmt: skip
    write_atomically(folder / CONFIG, orjson.dumps(config, option=orjson.OPT_INDENT_2))
