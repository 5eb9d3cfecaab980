"""Turn a checkpoint of verl into a model folder: full weights, and the adapter if one was trained."""

import shutil
from pathlib import Path
from typing import Any

from components.training.ppo.adapters import concatenate_adapters, merge_adapter, read_adapter, write_adapter
from components.training.ppo.checkpoints import lora_scale, read_weights
from qinglan.errors import DataError
from qinglan.models.references import ADAPTER_FOLDER
from qinglan.rewriter.card import RewriterCard, write_card

WEIGHTS = ("*.safetensors", "*.safetensors.index.json", "*.bin")
LORA_META = "lora_train_meta.json"


def export_checkpoint(actor: Path, sft_model: Path, folder: Path, card: RewriterCard) -> None:
    """Fill the folder; its adapter/, if there is one, adds what the adapters of SFT and PPO add together."""
    shutil.copytree(sft_model, folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns(*WEIGHTS, ADAPTER_FOLDER))
    started = _model(sft_model)
    before = started.state_dict()
    if (actor / LORA_META).is_file():
        adapter, scale = read_weights(actor, only=".lora_"), lora_scale(actor)
        adapter = {_plain(name): tensor for name, tensor in adapter.items()}
        after = merge_adapter(before, adapter, scale)
        _write_adapter(sft_model, folder, (adapter, scale), card)
    else:
        after = read_weights(actor)
        _same_shapes(before, after, actor)
    started.load_state_dict(after)
    started.save_pretrained(folder)
    write_card(folder, card)


def export_untrained(sft_model: Path, folder: Path, card: RewriterCard) -> None:
    """Fill the folder with the SFT model as it is, where PPO made nothing better of it."""
    shutil.copytree(sft_model, folder, dirs_exist_ok=True)
    write_card(folder, card)


def _model(folder: Path) -> Any:
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(folder, dtype="auto", use_safetensors=True, local_files_only=True)


def _plain(name: str) -> str:
    """The tensor's name as PEFT saves it: without the adapter's name, `default`."""
    return name.replace(".default.", ".")


def _same_shapes(before: dict[str, Any], after: dict[str, Any], actor: Path) -> None:
    shapes = [{name: tuple(tensor.shape) for name, tensor in weights.items()} for weights in (before, after)]
    if shapes[0] != shapes[1]:
        odd = sorted(name for name in shapes[0] | shapes[1] if shapes[0].get(name) != shapes[1].get(name))
        raise DataError(
            f"{actor}: this checkpoint is of another model than the SFT model: {odd[0]} is "
            f"{shapes[1].get(odd[0])} here and {shapes[0].get(odd[0])} there. Remove the folder and run again."
        )


def _write_adapter(sft_model: Path, folder: Path, trained: tuple[dict[str, Any], float], card: RewriterCard) -> None:
    """Write one adapter for the base model if SFT trained one too, else one for the SFT model."""
    nothing: dict[str, Any] = {}
    first = read_adapter(sft_model / ADAPTER_FOLDER) if (sft_model / ADAPTER_FOLDER).is_dir() else (nothing, 1.0)
    base = card.parents.get("base_model", "") if first[0] else card.parents["sft_model"]
    write_adapter(folder / ADAPTER_FOLDER, concatenate_adapters(first, trained), base)
