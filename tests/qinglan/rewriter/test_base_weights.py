"""The base that vLLM loads under an adapter is the one that the adapter was trained on, to the byte."""

import shutil
from pathlib import Path

import orjson
import pytest

from components.training.base.config import BaseConfig
from components.training.base.stage import base as run_base_stage
from qinglan.errors import AlteredError, DataError
from qinglan.files.digests import digest
from qinglan.rewriter.base_weights import verify_base
from qinglan.rewriter.card import CARD, RewriterCard, write_card
from tests.models.tiny_rewriter import tiny_model


@pytest.fixture(scope="module")
def volume(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A base model as its authors publish it: without our card."""
    folder = tiny_model(tmp_path_factory.mktemp("volume") / "Qwen3")
    (folder / CARD).unlink()
    return folder


@pytest.fixture
def release(volume: Path, tmp_path: Path) -> Path:
    """A model with an adapter, whose base the base stage took from the volume."""
    run_base_stage(tmp_path / "kb", tmp_path / "prompts", tmp_path / "base_model", BaseConfig(model=str(volume)))
    model = tmp_path / "model"
    (model / "adapter").mkdir(parents=True)
    named = {"base_model_name_or_path": f"sha256:{digest(tmp_path / 'base_model')}"}
    (model / "adapter" / "adapter_config.json").write_bytes(orjson.dumps(named))
    return model


def test_the_volumes_folder_is_the_base_that_the_adapter_names(volume: Path, release: Path) -> None:
    assert verify_base(volume, release) == digest(release.parent / "base_model")


def test_an_adapter_of_sft_alone_names_its_base_in_the_card(volume: Path, release: Path) -> None:
    (release / "adapter" / "adapter_config.json").write_text('{"base_model_name_or_path": "/scratch/base_model"}')
    with pytest.raises(DataError, match=CARD):
        verify_base(volume, release)
    write_card(release, RewriterCard(stage="sft"))
    with pytest.raises(DataError, match="names no base model"):
        verify_base(volume, release)

    write_card(release, RewriterCard(stage="sft", parents={"base_model": digest(release.parent / "base_model")}))

    assert verify_base(volume, release)


@pytest.mark.parametrize("change", ["a byte", "a file more", "a file less"])
def test_another_base_is_refused(volume: Path, release: Path, tmp_path: Path, change: str) -> None:
    other = tmp_path / "other"
    shutil.copytree(volume, other)
    weights = other / "model.safetensors"
    if change == "a byte":
        content = bytearray(weights.read_bytes())
        content[-1] ^= 1
        weights.write_bytes(content)
    elif change == "a file more":
        (other / "model-2.safetensors").write_bytes(b"")
    else:
        (other / "generation_config.json").unlink()

    with pytest.raises(AlteredError, match="was trained on the base"):
        verify_base(other, release)
