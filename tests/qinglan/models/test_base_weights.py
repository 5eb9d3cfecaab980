"""A public model is found by its name, and weights that did not arrive whole are named with what is missing."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from qinglan.errors import DataError
from qinglan.models.base_weights import WEIGHTS_VARIABLE, local_model_folder, refuse_partial_download

SHARDS = ("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors")


@pytest.fixture
def downloaded(tmp_path: Path) -> Path:
    """A whole model in two shards and an index, as the hub has it."""
    for number, shard in enumerate(SHARDS):
        save_file({f"layer{number}": torch.ones(4, 8)}, tmp_path / shard)
    weight_map = {f"layer{number}": shard for number, shard in enumerate(SHARDS)}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    return tmp_path


def test_whole_weights_are_taken(downloaded: Path) -> None:
    refuse_partial_download(downloaded)


def test_a_shard_that_is_not_there_is_named(downloaded: Path) -> None:
    (downloaded / SHARDS[1]).unlink()

    with pytest.raises(DataError, match=r"index\.json names model-00002-of-00002\.safetensors, which is not there"):
        refuse_partial_download(downloaded)


def test_a_shard_that_was_cut_short_is_named_with_both_sizes(downloaded: Path) -> None:
    whole = (downloaded / SHARDS[0]).read_bytes()
    (downloaded / SHARDS[0]).write_bytes(whole[:-100])

    with pytest.raises(DataError) as refused:
        refuse_partial_download(downloaded)

    assert f"{SHARDS[0]} has {len(whole) - 100} bytes, and its header says {len(whole)}." in str(refused.value)
    assert "hf download" in str(refused.value)


def test_a_shard_whose_header_was_cut_is_named(downloaded: Path) -> None:
    for shard in SHARDS:
        (downloaded / shard).write_bytes((downloaded / shard).read_bytes()[:20])

    with pytest.raises(DataError, match=rf"completely: {SHARDS[0]}: no safetensors: .* 1 more files are like that"):
        refuse_partial_download(downloaded)


def test_a_pointer_of_git_lfs_is_named(downloaded: Path) -> None:
    (downloaded / SHARDS[0]).write_text("version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 5\n")

    with pytest.raises(DataError, match="a pointer of Git LFS, without the weights"):
        refuse_partial_download(downloaded)


def test_a_shard_of_another_download_is_named(downloaded: Path) -> None:
    (downloaded / SHARDS[1]).write_bytes((downloaded / SHARDS[0]).read_bytes())

    with pytest.raises(DataError, match=r"lacks layer1, which model\.safetensors\.index\.json says it has"):
        refuse_partial_download(downloaded)


def test_a_folder_comes_before_a_public_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    public, copied = tmp_path / "weights" / "Qwen" / "Qwen3-1.7B", tmp_path / "own"
    public.mkdir(parents=True)
    copied.mkdir()

    assert local_model_folder(str(copied)) == copied
    assert local_model_folder("Qwen/Qwen3-1.7B") is None
    monkeypatch.setenv(WEIGHTS_VARIABLE, str(tmp_path / "weights"))
    assert local_model_folder("Qwen/Qwen3-1.7B") == public
    assert local_model_folder("Qwen/Qwen3-4B") is None
