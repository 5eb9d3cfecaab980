"""Check that every loader reads the same files of a model's folder, and none outside of it.

    refuse_foreign_files(folder)                          # before the model is loaded
    faults = reference_faults(plain_files(folder).files)  # the fault of each refused file

transformers and vLLM follow every name in a model's files: the shards of a weight index, and the weights and the
vocabulary that a configuration names. The digest of a folder does not cover files outside the folder. Loaders also
differ if there are several files of weights: some read the files in the index, some read all files, and some read
consolidated.safetensors. So only two forms are accepted: an index with its shards, or one file without an index. Also
refused are settings that make a loader run code or load another model (acting_settings.py), templates whose work has
no bound (chat_template_work.py), tokenizers with unknown parts (tokenizer_parts.py), and sizes in config.json that
differ from the embedding's shape.
"""

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from qinglan.documents import parse_json, parse_json_mapping
from qinglan.errors import DataError
from qinglan.files.plain_files import plain_files, read_plain
from qinglan.models.acting_settings import keyed_values, settings_fault
from qinglan.models.chat_template_work import template_fault
from qinglan.models.safetensors_header import Tensor, read_header
from qinglan.models.tokenizer_parts import tokenizer_fault
from qinglan.terminal import visible

SAFETENSORS, INDEX = ".safetensors", ".index.json"
WEIGHTS = (SAFETENSORS, f"{SAFETENSORS}{INDEX}")
"""Endings of file names that transformers reads as weights. A configuration may name such a file under any key."""

FILE_KEYS = ("_file", "_files", "_spm")
"""Endings of the keys under which a tokenizer's configuration names files."""

ADAPTER_FOLDER = "adapter"
"""Folder of the adapter beside a model's merged weights."""

ADAPTER_CONFIG, ADAPTER_WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
CONFIG, TOKENIZER = "config.json", "tokenizer.json"
SPECIAL_TOKENS = "special_tokens_map.json"
"""File that transformers reads as settings of the tokenizer, although "config" is not in its name."""

VOCABULARIES = frozenset({"vocab.json", "added_tokens.json"})
"""Large files of words, which hold no settings."""

WHOLE = "model.safetensors"
PEFT_TYPE = "LORA"

EMBEDDINGS = ("embed_tokens.weight", "word_embeddings.weight", "lm_head.weight", "wte.weight")
"""Endings of the names of tensors that have a row for each token: the embedding in Qwen and Llama, the embedding in
BERT's family, the output layer, and the embedding in GPT-2."""


def refuse_foreign_files(folder: Path, weights: bool = True, files: Mapping[str, Path] | None = None) -> None:
    """Raise a DataError if a loader would read files outside of the folder or, with `weights`, would find no weights.

    `files` are other paths from which the folder's files are read, such as copies of them.
    """
    listing = plain_files(folder)
    links = {name: why for name, why in listing.faults.items() if (folder / name).is_symlink()}
    for name, why in sorted((reference_faults(files or listing.files, weights=weights) or links).items()):
        raise DataError(
            f"{folder / name}: no whole model: {why}. Copy it again from where it was trained, or run that stage "
            "again."
        )


def reference_faults(
    files: Mapping[str, Path], elsewhere: Collection[str] = (), weights: bool = True
) -> dict[str, str]:
    """Return the fault of each refused file by its path. If `weights` are required and missing, the path is ".".

    `files` are the plain files by their paths in the model's folder. `elsewhere` are paths of more files of the
    model, whose bytes are not on this machine.
    """
    siblings: dict[str, set[str]] = {}
    for name in (*files, *elsewhere):
        folder, _, file = name.rpartition("/")
        siblings.setdefault(folder, set()).add(file)
    faults = {}
    for name, path in files.items():
        folder, _, file = name.rpartition("/")
        if why := _fault(file, path, siblings[folder], top=not folder):
            faults[name] = why
    top = siblings.get("", set())
    headers = {name: _header(files[name]) for name in files if name.endswith(SAFETENSORS) and "/" not in name}
    if CONFIG in files and (why := _embedding_fault(files[CONFIG], headers)):
        faults.setdefault(CONFIG, why)
    # A broken header counts as weights here: model_files.py says what is wrong with it.
    loadable = {name for name in top if name.endswith(SAFETENSORS) and headers.get(name) != []} - {ADAPTER_WEIGHTS}
    if weights and not loadable:
        faults["."] = f"it has no weights: no {SAFETENSORS} file with a tensor lies at its top"
    elif not any(name.endswith(INDEX) for name in top):
        faults |= dict.fromkeys(_other_weights(top), "weights beside others, and no index says which are read")
    return faults


def _header(path: Path) -> list[Tensor] | None:
    """Return the tensors of a file of weights; None if its header is broken."""
    try:
        return read_header(path)
    except DataError:
        return None


def _other_weights(top: Collection[str]) -> list[str]:
    """Return the files of weights beside the main one. Some loaders read them in addition to it, some instead of it,
    and some not at all."""
    weights = sorted(name for name in top if name.endswith(SAFETENSORS))
    return [name for name in weights if name != WHOLE] if WHOLE in weights else weights[1:]


def _embedding_fault(config: Path, headers: Mapping[str, list[Tensor] | None]) -> str:
    """Return a sentence on the first size in config.json that differs from the embedding's shape; "" if none does. A
    loader allocates memory by config.json, and fills it from the embedding."""
    try:
        settings = parse_json(read_plain(config), CONFIG)
    except (OSError, DataError):
        return ""  # _settings_fault reports it
    if not isinstance(settings, dict):
        return ""
    columns = "embedding_size" if settings.get("embedding_size") is not None else "hidden_size"
    for tensor in (tensor for tensors in headers.values() for tensor in tensors or ()):
        if not tensor.name.endswith(EMBEDDINGS):
            continue
        for key, size in zip(("vocab_size", columns), tensor.shape, strict=False):
            if settings.get(key) not in (None, size):
                value = visible(str(settings[key])[:40])
                return f"'{key}' is {value}, and {tensor.name} has the shape {list(tensor.shape)}"
    return ""


def _fault(file: str, path: Path, siblings: Collection[str], top: bool) -> str:
    """Return why a file is refused for its contents; "" if it is accepted."""
    if top and file == ADAPTER_CONFIG:
        return "it makes the loader take the base model from elsewhere, or add an adapter; that belongs in adapter/"
    lowered = file.casefold()
    try:
        if lowered.endswith(INDEX):
            return _index_fault(path, siblings)
        if lowered.endswith(".jinja"):
            return template_fault(read_plain(path).decode("utf-8"))
        if lowered == TOKENIZER:
            return tokenizer_fault(parse_json(read_plain(path), path.name))
        if lowered.endswith(".json") and lowered not in VOCABULARIES:
            return _settings_fault(file, parse_json(read_plain(path), file), siblings)
    except (OSError, UnicodeDecodeError):
        return ""  # model_files.py reports it, and no loader reads such a file
    except DataError as error:
        return str(error).rstrip(".")
    return ""


def _index_fault(path: Path, siblings: Collection[str]) -> str:
    try:
        weight_map = parse_json_mapping(read_plain(path), path.name)["weight_map"]
        if not isinstance(weight_map, dict) or not weight_map:
            raise ValueError("weight_map is no mapping, or empty")
        if not all(isinstance(shard, str) for shard in weight_map.values()):
            raise ValueError("weight_map names a file by something other than text")
    except (OSError, ValueError, KeyError, DataError) as error:
        return f"no index of weights ({str(error)[:120]})"
    # https://huggingface.co/docs/transformers/big_models#sharded-checkpoints
    shards = set(weight_map.values())
    for shard in sorted(shards):
        if not shard.endswith(SAFETENSORS):
            return f"it names {_quoted(shard)} for weights, and weights are {SAFETENSORS} files"
        if shard not in siblings:
            return f"it names {_quoted(shard)}, and that is no plain file beside it"
    for name in sorted(siblings):
        if name.endswith(SAFETENSORS) and name not in shards:
            return f"{_quoted(name)} lies beside it and is not in it: some loaders would read that too"
    return ""


def _settings_fault(file: str, settings: Any, siblings: Collection[str]) -> str:
    if "config" in file.casefold() or file.casefold() == SPECIAL_TOKENS:
        # Under any key: a setting can have another name (`attribute_map`).
        for key, text in keyed_values(settings):
            if isinstance(text, str) and (text.endswith(WEIGHTS) or key.endswith(FILE_KEYS)) and text not in siblings:
                return f"{_quoted(key)} names {_quoted(text)}, and that is no plain file beside it"
    if file == ADAPTER_CONFIG and isinstance(settings, dict) and settings.get("peft_type") not in (None, PEFT_TYPE):
        return f"an adapter of type {_quoted(str(settings['peft_type']))}, and only {PEFT_TYPE} is served"
    return settings_fault(file, settings)


def _quoted(text: str) -> str:
    return f"'{visible(text[:80])}'"
