"""Files that a model's own files name: each must be a plain file of the same folder.

    refuse_foreign_files(folder)                         # before it is loaded
    faults = reference_faults(plain_files(folder).files)  # every one of them

transformers and vLLM follow such names wherever they lead: the shards of a weight index, and the weights and the
vocabulary that a configuration names. The digest of a folder says nothing of the bytes that lie elsewhere.
"""

import json
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

from qinglan.errors import DataError
from qinglan.models.safetensors_header import read_header
from qinglan.plain_files import plain_files
from qinglan.terminal import visible

SAFETENSORS, INDEX = ".safetensors", ".index.json"
WEIGHTS = (SAFETENSORS, f"{SAFETENSORS}{INDEX}")
"""Endings of a name that transformers takes for weights, under whichever key of a configuration."""

FILE_KEYS = ("_file", "_files", "_spm")
"""Endings of the keys under which a tokenizer's configuration names files."""

ADAPTER_CONFIG, ADAPTER_WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
SPECIAL_TOKENS = "special_tokens_map.json"
"""Read as settings of the tokenizer, whatever its keys."""


def refuse_foreign_files(folder: Path, weights: bool = True) -> None:
    """A DataError where loading the model would read a file outside of its folder, or with `weights` find none."""
    listing = plain_files(folder)
    links = {name: why for name, why in listing.faults.items() if (folder / name).is_symlink()}
    for name, why in sorted((reference_faults(listing.files, weights=weights) or links).items()):
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
    if weights and not _has_weights(files, siblings.get("", set())):
        faults["."] = f"it has no weights: no {SAFETENSORS} file with a tensor lies at its top"
    return faults


def _fault(file: str, path: Path, siblings: Collection[str], top: bool) -> str:
    if top and file == ADAPTER_CONFIG:
        return "it makes the loader take the base model from elsewhere, or add an adapter; that belongs in adapter/"
    lowered = file.casefold()
    if lowered.endswith(INDEX):
        return _index_fault(path, siblings)
    if lowered.endswith(".json") and ("config" in lowered or lowered == SPECIAL_TOKENS):
        return _config_fault(path, siblings)
    return ""


def _index_fault(path: Path, siblings: Collection[str]) -> str:
    """Stricter than the loaders: a name that is there twice is read differently by different programs."""
    try:
        index = json.loads(path.read_bytes().decode("utf-8"), object_pairs_hook=_once, parse_constant=_no_number)
        weight_map = index["weight_map"]
        if not isinstance(weight_map, dict) or not weight_map:
            raise ValueError("weight_map is no mapping, or empty")
        if not all(isinstance(shard, str) for shard in weight_map.values()):
            raise ValueError("weight_map names a file by something other than text")
    except (OSError, ValueError, TypeError, KeyError, RecursionError) as error:
        return f"no index of weights ({type(error).__name__}: {str(error)[:80]})"
    for shard in sorted(set(weight_map.values())):
        if not shard.endswith(SAFETENSORS):
            return f"it names {_quoted(shard)} for weights, and weights are {SAFETENSORS} files"
        if shard not in siblings:
            return f"it names {_quoted(shard)}, and that is no plain file beside it"
    return ""


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(mapping := dict(pairs)) != len(pairs):
        raise ValueError("a name is there twice")
    return mapping


def _no_number(constant: str) -> None:
    raise ValueError(f"{constant} is no JSON")


def _config_fault(path: Path, siblings: Collection[str]) -> str:
    """Every text in it, since one setting can stand for another (`attribute_map`)."""
    try:
        settings = json.loads(path.read_bytes().decode("utf-8"))
    except (OSError, ValueError, RecursionError):
        return ""  # what is no JSON is refused as such, and no loader reads it
    for key, text in _texts(settings):
        if (text.endswith(WEIGHTS) or key.endswith(FILE_KEYS)) and text not in siblings:
            return f"{_quoted(key)} names {_quoted(text)}, and that is no plain file beside it"
    return ""


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
