"""Checks of public models before a training starts from them. Only files are read; no model is loaded.

refuse_unfit_base(Path("/weights/Qwen/Qwen3-32B"))
critic = find_critic("Qwen/Qwen3-1.7B")
"""

import os
from pathlib import Path

from qinglan.errors import ConfigError, DataError
from qinglan.files.files import read_json_mapping
from qinglan.models.base_weights import WEIGHTS_VARIABLE, local_model_folder, refuse_partial_download
from qinglan.sizing.shape import FAMILIES, shape_of
from qinglan.text.text import neutralise_tokens

AGAIN = "Download the model again."
CAUSAL = "ForCausalLM"
"""Ending of the names of architectures that write text from left to right, which training and vLLM need."""


def refuse_unfit_base(folder: Path) -> None:
    """Raise a DataError if no rewriter can be trained from this model; the message says which model to take
    instead."""
    refuse_partial_download(folder)
    refuse_other_architecture(folder)
    refuse_typable_tokens(folder)
    # Older models have the template in the tokenizer's settings.
    beside = any(folder.glob("chat_template.jin*")) or any(folder.glob("additional_chat_templates/*"))
    settings = folder / "tokenizer_config.json"
    if not beside and not (settings.is_file() and read_json_mapping(settings, AGAIN).get("chat_template")):
        raise DataError(
            f"{folder}: its tokenizer has no chat template, which gives prompts their form. Take an instruct "
            "model, or put the family's chat_template.jinja into the folder."
        )


def refuse_other_architecture(folder: Path) -> None:
    """Raise a DataError if the checkpoint is not a causal language model, is unknown to transformers or quantised, or
    if its config.json lacks a size."""
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING_NAMES

    path = folder / "config.json"
    config = read_json_mapping(path, AGAIN)
    kinds = [str(name) for name in config.get("architectures") or []]
    if not any(name.endswith(CAUSAL) for name in kinds):
        kind = ", ".join(kinds) or config.get("model_type") or "model without a type"
        raise DataError(
            f"{path}: a {kind}, and a rewriter is a ...{CAUSAL}. Take a text model, such as Qwen/Qwen3-8B."
        )
    if (model_type := config.get("model_type")) not in CONFIG_MAPPING_NAMES:
        raise DataError(
            f"{path}: model_type {model_type!r} is unknown to this transformers. Take a model of a "
            "family that it knows, such as Qwen3."
        )
    if quantised := config.get("quantization_config"):
        raise DataError(
            f"{folder}: its weights are quantised ({quantised.get('quant_method')}), and an adapter cannot be merged "
            "into them. Take the model in bfloat16."
        )
    if model_type in FAMILIES:
        shape_of(config, str(path))


def refuse_typable_tokens(folder: Path) -> None:
    """Raise a DataError if a user's text could contain a control token of this model that prompts do not
    neutralise."""
    path = folder / "tokenizer.json"
    for token in read_json_mapping(path, AGAIN).get("added_tokens") or [] if path.is_file() else []:
        content = str(token.get("content"))
        if token.get("special") and neutralise_tokens(content) == content:
            raise DataError(
                f"{path}: the control token {content!r} has neither < nor [, so that a user's text could hold it. "
                "Take a model of a family whose control tokens have brackets, such as Qwen3."
            )


def find_critic(model: str) -> Path:
    """Find and check the folder of `ppo.critic_model`. It must exist here, since a training's pods cannot reach the
    hub."""
    if (folder := local_model_folder(model)) is None:
        weights = os.environ.get(WEIGHTS_VARIABLE)
        raise ConfigError(
            f"ppo.critic_model {model}: no such folder here, nor {model} in "
            f"{weights or 'a folder of weights'} ({WEIGHTS_VARIABLE}{'' if weights else ' is not set'}). Download it "
            f"with `hf download {model} --local-dir FOLDER/{model}` and set {WEIGHTS_VARIABLE}=FOLDER; on a cluster "
            "copy it to the volume of cluster.base_weights."
        )
    refuse_partial_download(folder)
    refuse_other_architecture(folder)
    return folder


def refuse_other_vocabulary(critic: Path, model: Path) -> None:
    """Raise a ConfigError if the critic's vocabulary differs from the model's, because the critic would then read
    other texts than the model writes."""
    from qinglan.rewriter.model import load_tokenizer

    if load_tokenizer(critic).get_vocab() != load_tokenizer(model).get_vocab():
        raise ConfigError(
            f"ppo.critic_model {critic} has another vocabulary than {model}: it would read other texts. Take a "
            "smaller model of the same family, such as Qwen/Qwen3-1.7B for Qwen3."
        )
