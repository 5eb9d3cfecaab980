"""Find models by their public names, such as Qwen/Qwen3-32B, in a folder of weights. On a cluster the folder is a
volume.

folder = local_model_folder("Qwen/Qwen3-32B")    # None if this machine does not have it
refuse_partial_download(folder)
"""

import os
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from qinglan.documents import parse_json_mapping
from qinglan.errors import DataError
from qinglan.files.plain_files import open_plain, read_plain
from qinglan.models.safetensors_header import declared_size, read_header

WEIGHTS_VARIABLE = "QINGLAN_BASE_WEIGHTS"
"""Environment variable with the path of a folder of models, for a cluster whose pods cannot reach the hub."""

INDEX = "model.safetensors.index.json"
LFS_POINTER = b"version https://git-lfs"


def local_model_folder(model: str) -> Path | None:
    """Return a model's folder by its path, or by its public name in the folder of weights; None if it is missing."""
    named, weights = Path(model), os.environ.get(WEIGHTS_VARIABLE)
    folder = named if named.is_dir() or not weights else Path(weights) / model
    return folder if folder.is_dir() else None


def refuse_partial_download(folder: Path) -> None:
    """Raise a DataError if weights are missing or cut short; only headers are read."""
    if faults := list(download_faults(folder)):
        more = f" {len(faults) - 1} more files are like that." if len(faults) > 1 else ""
        raise DataError(
            f"{folder}: the weights were not downloaded completely: {faults[0]}.{more} Download them again; "
            "`hf download MODEL --local-dir FOLDER` continues where it stopped."
        )


def download_faults(folder: Path) -> Iterator[str]:
    """Yield a sentence for each file of weights that is missing or cut short, by the index and the files' headers."""
    shards = _indexed_tensors(folder)
    for name in sorted({*shards, *(path.name for path in folder.glob("*.safetensors"))}):
        if fault := _shard_fault(folder / name, shards.get(name, set())):
            yield fault


def _indexed_tensors(folder: Path) -> dict[str, set[str]]:
    """Return the names of the tensors of each shard, as the index lists them. A broken index and shards in other
    folders are skipped, since references.py refuses them."""
    try:
        named = parse_json_mapping(read_plain(folder / INDEX), INDEX)["weight_map"].items()
    except (OSError, DataError, KeyError, TypeError, AttributeError):
        return {}
    shards: dict[str, set[str]] = defaultdict(set)
    for tensor, shard in named:
        if Path(str(shard)).name == shard:
            shards[shard].add(tensor)
    return shards


def _shard_fault(path: Path, tensors: set[str]) -> str:
    if not path.is_file():
        return f"{INDEX} names {path.name}, which is not there"
    with open_plain(path) as file:
        if file.read(len(LFS_POINTER)) == LFS_POINTER:
            return f"{path.name} is a pointer of Git LFS, without the weights (`git lfs pull`)"
    size = path.stat().st_size
    try:
        declared = declared_size(path)
        missing = tensors - {tensor.name for tensor in read_header(path)} if size == declared else set()
    except DataError as error:
        return str(error).removeprefix(f"{path.parent}/").rstrip(".")
    if size != declared:
        return f"{path.name} has {size:,} bytes, and its header says {declared:,}"
    return f"{path.name} lacks {min(missing)}, which {INDEX} says it has" if missing else ""
