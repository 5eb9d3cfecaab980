"""Check that every loader reads the same files of a model's folder, and none outside of it.

    refuse_foreign_files(folder)                         # before it is loaded
    faults = reference_faults(plain_files(folder).files)  # every one of them

transformers and vLLM follow names wherever they lead: the shards of a weight index, and the weights and the
vocabulary that a configuration names. The digest of a folder says nothing of the bytes that lie elsewhere. They also
differ: where there are several files of weights, one reads what the index names, another every file, a third
consolidated.safetensors. So a folder has one reading: the index and its shards, or one file without an index.
Sizes that are not those of the weights (embedding_shape.py), settings that act (acting_settings.py), templates
without a bound (chat_template_work.py) and tokenizers of unknown parts (tokenizer_parts.py) are refused as well.
"""

from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

from qinglan.documents import parse_json, parse_json_mapping
from qinglan.errors import DataError
from qinglan.files.plain_files import plain_files, read_plain
from qinglan.models.embedding_shape import embedding_fault
from qinglan.models.safetensors_header import read_header
from qinglan.terminal import visible

SAFETENSORS, INDEX = ".safetensors", ".index.json"
WEIGHTS = (SAFETENSORS, f"{SAFETENSORS}{INDEX}")
"""Endings of a name that transformers takes for weights, under whichever key of a configuration."""

FILE_KEYS = ("_file", "_files", "_spm")
"""Endings of the keys under which a tokenizer's configuration names files."""

ADAPTER_FOLDER = "adapter"
"""The folder of the adapter beside a model's merged weights."""

ADAPTER_CONFIG, ADAPTER_WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
SPECIAL_TOKENS = "special_tokens_map.json"
"""Files that are read as the tokenizer's settings, whatever their keys."""

TOKENIZER = "tokenizer.json"
VOCABULARIES = frozenset({"vocab.json", "added_tokens.json"})
"""Large files of words, which hold no settings."""

WHOLE = "model.safetensors"
PEFT_TYPE = "LORA"


def refuse_foreign_files(folder: Path, weights: bool = True, files: Mapping[str, Path] | None = None) -> None:
    """Raise a DataError if loading would read a file outside of the folder, or, with `weights`, finds none.

    `files` are the paths where the folder's files are read, such as copies of them.
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
    """Why each file may not name what it names; under "." that there are no weights, where `weights` are needed.

    `files` are the plain files by their paths in the model's folder; `elsewhere` are paths of files that belong to
    the model too and whose bytes are not at hand.
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
    if why := embedding_fault(files):
        faults.setdefault("config.json", why)
    top = siblings.get("", set())
    if weights and not _has_weights(files, top):
        faults["."] = f"it has no weights: no {SAFETENSORS} file with a tensor lies at its top"
    elif not any(name.endswith(INDEX) for name in top):
        faults |= dict.fromkeys(_other_weights(top), "weights beside others, and no index says which are read")
    return faults


def _other_weights(top: Collection[str]) -> list[str]:
    """Files of weights that some loaders read beside the first one, some instead of it, and some not at all."""
    weights = sorted(name for name in top if name.endswith(SAFETENSORS))
    return [name for name in weights if name != WHOLE] if WHOLE in weights else weights[1:]


def _fault(file: str, path: Path, siblings: Collection[str], top: bool) -> str:
    if top and file == ADAPTER_CONFIG:
        return "it makes the loader take the base model from elsewhere, or add an adapter; that belongs in adapter/"
    lowered = file.casefold()
    if lowered.endswith(INDEX):
        return _index_fault(path, siblings)
    if lowered.endswith(".jinja"):
        return _template_fault(path)
    if lowered == TOKENIZER:
        return _tokenizer_fault(path)
    if lowered.endswith(".json") and lowered not in VOCABULARIES:
        return _settings_fault(file, path, siblings)
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
    for shard in sorted(set(weight_map.values())):
        if not shard.endswith(SAFETENSORS):
            return f"it names {_quoted(shard)} for weights, and weights are {SAFETENSORS} files"
        if shard not in siblings:
            return f"it names {_quoted(shard)}, and that is no plain file beside it"
    unnamed = sorted(name for name in siblings if name.endswith(SAFETENSORS) and name not in weight_map.values())
    return (
        f"{_quoted(unnamed[0])} lies beside it and is not in it: some loaders would read that too" if unnamed else ""
    )


def _template_fault(path: Path) -> str:
    from qinglan.models.chat_template_work import template_fault

    try:
        return template_fault(read_plain(path).decode("utf-8"))
    except (OSError, ValueError):
        return ""  # what is no text is refused as such, and no loader reads it


def _tokenizer_fault(path: Path) -> str:
    from qinglan.models.tokenizer_parts import tokenizer_fault

    try:
        return tokenizer_fault(parse_json(read_plain(path), path.name))
    except OSError:
        return ""
    except DataError as error:
        return str(error).rstrip(".")


def _settings_fault(file: str, path: Path, siblings: Collection[str]) -> str:
    """Every text in a configuration: any key may matter, as one setting can be an alias (`attribute_map`)."""
    from qinglan.models.acting_settings import settings_fault

    try:
        settings = parse_json(read_plain(path), file)
    except OSError:
        return ""
    except DataError as error:
        return str(error).rstrip(".")
    if "config" in file.casefold() or file.casefold() == SPECIAL_TOKENS:
        for key, text in _texts(settings):
            if (text.endswith(WEIGHTS) or key.endswith(FILE_KEYS)) and text not in siblings:
                return f"{_quoted(key)} names {_quoted(text)}, and that is no plain file beside it"
    if file == ADAPTER_CONFIG and isinstance(settings, dict) and settings.get("peft_type") not in (None, PEFT_TYPE):
        return f"an adapter of type {_quoted(str(settings['peft_type']))}, and only {PEFT_TYPE} is served"
    return settings_fault(file, settings)


def _texts(settings: Any) -> Iterator[tuple[str, str]]:
    """Each text with the key that it stands under, at any depth."""
    rest: list[tuple[str, Any]] = [("", settings)]
    while rest:
        key, value = rest.pop()
        if isinstance(value, str):
            yield key, value
        elif isinstance(value, dict):
            rest.extend(value.items())
        elif isinstance(value, list):
            rest.extend((key, item) for item in value)


def _has_weights(files: Mapping[str, Path], top: Collection[str]) -> bool:
    weights = [name for name in top if name.endswith(SAFETENSORS) and name != ADAPTER_WEIGHTS]
    return any(name not in files or _has_tensors(files[name]) for name in weights)


def _has_tensors(path: Path) -> bool:
    try:
        return bool(read_header(path))
    except DataError:
        return True  # broken weights are refused as such


def _quoted(text: str) -> str:
    return f"'{visible(text[:80])}'"
