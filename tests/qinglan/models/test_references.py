"""A model is its folder: whatever its files name lies in it, and there are weights."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from qinglan.errors import DataError
from qinglan.files.plain_files import plain_files
from qinglan.models.model_files import refuse_disallowed_files
from qinglan.models.references import reference_faults, refuse_foreign_files
from tests.releases.registered_release import tiny_weights

INDEX = "model.safetensors.index.json"
SHARDS = ("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors")


def sharded(folder: Path) -> Path:
    """The tiny model in two files and an index, as transformers saves a large one."""
    tiny_weights(folder)
    whole = folder / "model.safetensors"
    for shard in SHARDS:
        shutil.copyfile(whole, folder / shard)
    whole.unlink()
    return indexed(folder, dict(zip(("embed", "head"), SHARDS, strict=True)))


def indexed(folder: Path, weight_map: Any, name: str = INDEX) -> Path:
    (folder / name).parent.mkdir(exist_ok=True)
    (folder / name).write_text(json.dumps({"metadata": {"total_size": 32}, "weight_map": weight_map}))
    return folder


def faults(folder: Path) -> dict[str, str]:
    return reference_faults(plain_files(folder).files)


def test_a_model_in_shards_names_its_own_files(tmp_path: Path) -> None:
    folder = sharded(tmp_path / "model")

    assert faults(folder) == {}
    refuse_disallowed_files(folder)
    refuse_foreign_files(folder)


FOREIGN = [
    "../foreign.safetensors", "../../foreign.safetensors", "{elsewhere}/foreign.safetensors", "sub/own.safetensors",
    "sub\\own.safetensors", "..\\foreign.safetensors", "C:\\foreign.safetensors", "./model.safetensors",
    "missing.safetensors", "Model.safetensors", "ｍodel.safetensors", "model.safetensors/", "model.safetensors\0",
    "link.safetensors", "folder.safetensors", "", ".", "..", "config.json", "pytorch_model.bin",
    "file:///foreign.safetensors", "~/foreign.safetensors", " model.safetensors", "model.safetensors\n",
]  # fmt: skip


@pytest.mark.parametrize("value", FOREIGN)
@pytest.mark.parametrize(
    "index", [INDEX, "model.fp16.safetensors.index.json", "pytorch_model.bin.index.json", "other.index.json",
              "MODEL.SAFETENSORS.INDEX.JSON", "adapter/model.safetensors.index.json"],
)  # fmt: skip
def test_an_index_names_plain_files_beside_it_alone(tmp_path: Path, index: str, value: str) -> None:
    folder = tiny_weights(tmp_path / "model")
    shutil.copyfile(folder / "model.safetensors", tmp_path / "foreign.safetensors")
    (folder / "sub").mkdir()
    shutil.copyfile(folder / "model.safetensors", folder / "sub/own.safetensors")
    (folder / "folder.safetensors").mkdir()
    (folder / "link.safetensors").symlink_to(tmp_path / "foreign.safetensors")
    (folder / "pytorch_model.bin").write_bytes(b"x")
    indexed(folder, {"embed": value.format(elsewhere=tmp_path)}, index)

    assert list(faults(folder)) == [index]
    with pytest.raises(DataError, match=r"no whole model: it names .* Copy it again"):
        refuse_foreign_files(folder)


@pytest.mark.parametrize(
    "text",
    [
        "[]", "{", "null", "{}", '{"weight_map": {}}', '{"weight_map": []}', '{"weight_map": "model.safetensors"}',
        '{"weight_map": {"a": 1}}', '{"weight_map": {"a": null}}', '{"weight_map": {"a": ["model.safetensors"]}}',
        '{"weight_map": {"a": "model.safetensors"}, "weight_map": {"a": "/tmp/foreign.safetensors"}}',
        '{"weight_map": {"a": "/tmp/foreign.safetensors", "a": "model.safetensors"}}',
        '{"metadata": {"total_size": NaN}, "weight_map": {"a": "model.safetensors"}}',
        '{"weight_map": {"a": "model.safetensors"}} {}', '{"weight_map": ' + "[" * 100_000, "\udcff",
        '{"weight_map": ' + "9" * 5_000 + "}",
    ],
)  # fmt: skip
def test_an_index_that_programs_could_read_differently_is_none(tmp_path: Path, text: str) -> None:
    folder = tiny_weights(tmp_path / "model")
    (folder / INDEX).write_bytes(text.encode("utf-8", "surrogateescape"))

    assert faults(folder)[INDEX].startswith("no index of weights")


@pytest.mark.parametrize(
    ("file", "settings"),
    [
        ("config.json", {"transformers_weights": "/foreign.safetensors"}),
        ("config.json", {"transformers_weights": "../model.safetensors.index.json"}),
        ("config.json", {"text_config": {"transformers_weights": "../foreign.safetensors"}}),
        ("config.json", {"attribute_map": {"transformers_weights": "x"}, "x": "/foreign.safetensors"}),
        ("config.4.0.0.json", {"transformers_weights": "/foreign.safetensors"}),
        ("tokenizer_config.json", {"tokenizer_file": "/foreign.json"}),
        ("tokenizer_config.json", {"vocab_file": "../vocab.json"}),
        ("tokenizer_config.json", {"fast_tokenizer_files": ["tokenizer.json", "../tokenizer.json"]}),
        ("special_tokens_map.json", {"merges_file": "/merges.txt"}),
        ("adapter_config.json", {"base_model_name_or_path": "/foreign"}),
    ],
)
def test_a_configuration_names_files_beside_it_alone(tmp_path: Path, file: str, settings: dict[str, Any]) -> None:
    folder = tiny_weights(tmp_path / "model")
    (folder / file).write_text(json.dumps(settings))

    assert list(faults(folder)) == [file]
    with pytest.raises(DataError):
        refuse_disallowed_files(folder)


def test_a_configuration_may_name_what_lies_beside_it_and_an_adapter_its_base(tmp_path: Path) -> None:
    folder = tiny_weights(tmp_path / "model")
    settings = {"transformers_weights": "model.safetensors", "_name_or_path": "/data/base", "vocab_file": None}
    (folder / "config.json").write_text(json.dumps(settings))
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_file": "tokenizer.json"}))
    (folder / "adapter").mkdir()
    shutil.copyfile(folder / "model.safetensors", folder / "adapter/adapter_model.safetensors")
    (folder / "adapter/adapter_config.json").write_text('{"base_model_name_or_path": "/data/base"}')

    assert faults(folder) == {}


@pytest.mark.parametrize("left", ["none", "adapter", "nested", "hollow", "link", "pickle"])
def test_a_model_without_weights_is_refused(tmp_path: Path, left: str) -> None:
    import numpy as np
    from safetensors.numpy import save_file

    folder = tiny_weights(tmp_path / "model")
    weights = folder / "model.safetensors"
    moved = weights.rename(tmp_path / "model.safetensors")
    if left == "adapter":
        shutil.copyfile(moved, folder / "adapter_model.safetensors")
    elif left == "nested":
        (folder / "sub").mkdir()
        shutil.copyfile(moved, folder / "sub/model.safetensors")
    elif left == "hollow":
        save_file(dict[str, np.ndarray[Any, Any]](), weights)
    elif left == "link":
        weights.symlink_to(moved)
    elif left == "pickle":
        (folder / "pytorch_model.bin").write_bytes(b"x")

    assert faults(folder) == {".": "it has no weights: no .safetensors file with a tensor lies at its top"}
    with pytest.raises(DataError):
        refuse_disallowed_files(folder)
    with pytest.raises(DataError, match="no weights"):
        refuse_foreign_files(folder)


def test_weights_that_stayed_in_the_store_count_where_they_are_signed_for(tmp_path: Path) -> None:
    folder = sharded(tmp_path / "model")
    for shard in SHARDS:
        (folder / shard).unlink()
    files = plain_files(folder).files

    assert reference_faults(files, SHARDS) == {}
    assert list(reference_faults(files, weights=False)) == [INDEX]
    assert list(reference_faults(files, [f"../{SHARDS[0]}", SHARDS[1]])) == [INDEX]


@pytest.mark.parametrize("file", [INDEX, "config.json", SHARDS[0]])
def test_a_link_in_a_bare_folder_is_refused_at_load(tmp_path: Path, file: str) -> None:
    """A link's target is not in the folder, and could lead anywhere."""
    folder = sharded(tmp_path / "model")
    (folder / file).rename(tmp_path / "elsewhere")
    (folder / file).symlink_to(tmp_path / "elsewhere")

    with pytest.raises(DataError, match="no whole model"):
        refuse_foreign_files(folder, weights=False)
