"""Turn a checkpoint of verl into a model folder with full weights, and with the adapter if one was trained."""

import shutil
from pathlib import Path
from typing import Any

from components.training.ppo.adapters import concatenate_adapters, merge_adapter, read_adapter, write_adapter
from components.training.ppo.checkpoints import lora_scale, read_weights
from qinglan.models.references import ADAPTER_FOLDER
from qinglan.rewriter.card import RewriterCard, write_card

WEIGHTS = ("*.safetensors", "*.safetensors.index.json", "*.bin")
LORA_META = "lora_train_meta.json"


def export_checkpoint(actor: Path, sft_model: Path, folder: Path, card: RewriterCard) -> None:
    """Fill the folder from a checkpoint. Its adapter/, if one was trained, equals SFT's and PPO's together."""
    from transformers import AutoModelForCausalLM

    shutil.copytree(sft_model, folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns(*WEIGHTS, ADAPTER_FOLDER))
    started = AutoModelForCausalLM.from_pretrained(
        sft_model, dtype="auto", use_safetensors=True, local_files_only=True
    )
    if (actor / LORA_META).is_file():
        scale = lora_scale(actor)
        # PEFT saves names without the adapter's name, `default`.
        adapter = {
            name.replace(".default.", "."): tensor for name, tensor in read_weights(actor, only=".lora_").items()
        }
        after = merge_adapter(started.state_dict(), adapter, scale)
        # If SFT trained no adapter, the SFT model is the base of PPO's adapter.
        sft_adapter = sft_model / ADAPTER_FOLDER
        first, base = (dict[str, Any](), 1.0), card.parents["sft_model"]
        if sft_adapter.is_dir():
            first, base = read_adapter(sft_adapter), card.parents.get("base_model", "")
        write_adapter(folder / ADAPTER_FOLDER, concatenate_adapters(first, (adapter, scale)), base)
    else:
        after = read_weights(actor)
    started.load_state_dict(after)
    started.save_pretrained(folder)
    write_card(folder, card)


def export_untrained(sft_model: Path, folder: Path, card: RewriterCard) -> None:
    """Fill the folder with the unchanged SFT model, if no checkpoint of the training is better."""
    shutil.copytree(sft_model, folder, dirs_exist_ok=True)
    write_card(folder, card)
