"""A base model that is passed on by reference: its weights stay in the folder of base weights.

    write_reference(base_model, "Qwen/Qwen3-32B", Path("/weights/Qwen/Qwen3-32B"))
    weights_folder(base_model)        # /weights/Qwen/Qwen3-32B; for a copy of the weights, its own folder
    base_digest(base_model)           # the digest that a copy of the weights would have
    verify_reference(base_model)      # raises an AlteredError if the weights have changed

Without a reference, each run on a cluster would upload and download a copy of the weights through KFP's bucket, 65 GB
for Qwen3-32B. The reference holds the digest of each file. It lies in a folder with the file that the stage adds
(rewriter.json). So `base_digest`, with which statements, models and servers identify the base model, is the same for
a reference and for a copy.
"""

import os
from pathlib import Path

import orjson

from qinglan.config import Config
from qinglan.documents import parse_json_mapping
from qinglan.errors import AlteredError, DataError
from qinglan.files.digests import digest, file_digests, tree_digest
from qinglan.files.files import write_atomically
from qinglan.files.plain_files import read_plain
from qinglan.models.base_weights import WEIGHTS_VARIABLE, local_model_folder

BY_REFERENCE_VARIABLE = "QINGLAN_BASE_BY_REFERENCE"
"""Environment variable that a graph sets if all steps that read the base mount the folder of base weights."""

REFERENCE = "base_reference.json"


class BaseReference(Config):
    """Contents of the file that refers to a base model."""

    model: str
    """Public name of the model, which is its path in the folder of base weights."""

    files: dict[str, str]
    """SHA-256 of each file, by its path in the model's folder."""


def write_reference(target: Path, model: str, weights: Path) -> None:
    """Write a reference to a model into the folder `target`. All files of the model are read and hashed."""
    reference = BaseReference(model=model, files=file_digests(weights)).model_dump(mode="json")
    write_atomically(target / REFERENCE, orjson.dumps(reference, option=orjson.OPT_INDENT_2))


def is_reference(base: Path) -> bool:
    return (base / REFERENCE).is_file()


def weights_folder(base: Path) -> Path:
    """Return the folder with a base model's weights: `base` itself or, for a reference, the folder that it names."""
    if not is_reference(base):
        return base
    model = _read(base).model
    folder = local_model_folder(model)
    if folder is None:
        raise DataError(
            f"{base / REFERENCE}: {model} is in no folder here. Mount the volume of base weights and set "
            f"{WEIGHTS_VARIABLE}; on a cluster the graph does both (cluster.base_weights)."
        )
    return folder


def base_digest(base: Path) -> str:
    """Return the digest of a base model's files. For a reference, it is computed from the recorded file digests."""
    if not is_reference(base):
        return digest(base)
    files = {**_read(base).files, **file_digests(base)}
    del files[REFERENCE]
    return tree_digest({name: files[name] for name in sorted(files, key=os.fsencode)})


def verify_reference(base: Path) -> None:
    """Compare the weights that a reference names with its digests; raises an AlteredError if a file differs."""
    reference, folder = _read(base), weights_folder(base)
    files = file_digests(folder)
    if files != reference.files:
        changed = sorted(name for name, _ in set(files.items()) ^ set(reference.files.items()))
        raise AlteredError(
            f"{folder}: not the base that this run began with: {changed[0]} differs. Put {reference.model} back as "
            "it was, or give base.model or base.revision another value, so that the base stage reads it again."
        )


def _read(base: Path) -> BaseReference:
    path = base / REFERENCE
    return BaseReference.parse(parse_json_mapping(read_plain(path), str(path)), str(path))
