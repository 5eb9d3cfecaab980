"""A base that is handed on by reference is the copy that it stands for, to the byte, or the run ends."""

import shutil
from pathlib import Path

import pytest

from components.training.base.config import BaseConfig
from components.training.base.stage import base as run_base_stage
from qinglan.errors import AlteredError, DataError
from qinglan.files.digests import digest
from qinglan.lineage.signing.dsse import open_envelope
from qinglan.lineage.signing.statement import from_payload
from qinglan.lineage.steps.record import recorded
from qinglan.models.base_reference import (
    BY_REFERENCE_VARIABLE,
    REFERENCE,
    base_digest,
    is_reference,
    verify_reference,
    weights_folder,
)
from qinglan.models.base_weights import WEIGHTS_VARIABLE
from qinglan.rewriter.card import CARD
from tests.models.tiny_rewriter import tiny_model
from tests.releases.kfp_artifacts import File

pytestmark = pytest.mark.slow

MODEL = "Qwen/Qwen3-0.1B"
SETTINGS = BaseConfig(model=MODEL, revision="0" * 40)


@pytest.fixture
def volume(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A volume of base weights as a cluster's steps mount it, with one model; its folder is the answer."""
    monkeypatch.setenv(WEIGHTS_VARIABLE, str(tmp_path / "weights"))
    monkeypatch.setenv(BY_REFERENCE_VARIABLE, "1")
    folder = tiny_model(tmp_path / "weights" / MODEL)
    (folder / CARD).unlink()
    return folder


def base_model(folder: Path, settings: BaseConfig = SETTINGS) -> Path:
    run_base_stage(folder / "kb", folder / "prompts", folder / "base_model", settings)
    return folder / "base_model"


def step(folder: Path, name: str, base: Path, makes: bool) -> File:
    """A step that makes this base, or takes it; its lineage is the answer."""
    lineage = File(str(folder / f"{name}-lineage"))
    artifacts = {"base_model": File(str(base), schema_title="system.Model")}
    with recorded(name, *(({}, artifacts) if makes else (artifacts, {})), {}, lineage):
        pass
    return lineage


def test_a_reference_has_the_digest_of_a_copy_and_none_of_its_bytes(
    volume: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reference = base_model(tmp_path)
    monkeypatch.delenv(BY_REFERENCE_VARIABLE)
    copy = base_model(tmp_path / "here")

    assert sorted(path.name for path in reference.iterdir()) == [REFERENCE, CARD]
    assert (is_reference(reference), weights_folder(reference)) == (True, volume)
    assert (is_reference(copy), weights_folder(copy)) == (False, copy)
    assert base_digest(reference) == base_digest(copy) == digest(copy)


def test_the_statements_of_both_steps_name_the_weights_and_not_the_reference(volume: Path, tmp_path: Path) -> None:
    base = base_model(tmp_path)

    signed = [
        from_payload(open_envelope(next(Path(lineage.path).glob("*.dsse.json")).read_bytes()).payload)
        for lineage in (step(tmp_path, "base", base, makes=True), step(tmp_path, "sft", base, makes=False))
    ]

    named = {
        part.digest
        for statement in signed
        for part in (*statement.made, *statement.used)
        if part.name == "base_model"
    }
    assert named == {base_digest(base)} != {digest(base)}


@pytest.mark.parametrize("change", ["a byte", "a file more", "a file less"])
def test_weights_that_changed_under_a_reference_end_the_step_that_takes_them(
    volume: Path, tmp_path: Path, change: str
) -> None:
    base = base_model(tmp_path)
    verify_reference(base)
    weights = volume / "model.safetensors"
    if change == "a byte":
        weights.write_bytes(weights.read_bytes()[:-1] + b"\x01")
    elif change == "a file more":
        (volume / "more.txt").write_text("more")
    else:
        weights.unlink()

    with pytest.raises(AlteredError, match="not the base that this run began with"):
        step(tmp_path, "sft", base, makes=False)


def test_no_other_artifact_passes_for_the_weights_that_it_names(volume: Path, tmp_path: Path) -> None:
    forged = base_model(tmp_path)
    base_file = File(str(forged), schema_title="system.Model")

    with recorded("ppo", {}, {"rl_model": base_file}, {}, File(str(tmp_path / "lineage"))):
        pass

    assert base_file.metadata["sha256"] == digest(forged) != base_digest(forged)


def test_a_step_without_the_volume_is_told_to_mount_it(
    volume: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = base_model(tmp_path)
    monkeypatch.delenv(WEIGHTS_VARIABLE)

    with pytest.raises(DataError, match=r"Mount the volume of base weights .*cluster\.base_weights"):
        weights_folder(base)


def test_a_folder_elsewhere_or_with_links_is_copied(volume: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    shutil.copytree(volume, elsewhere)
    assert not is_reference(base_model(tmp_path / "one", BaseConfig(model=str(elsewhere))))

    (volume / "model.safetensors").rename(tmp_path / "real")
    (volume / "model.safetensors").symlink_to(tmp_path / "real")
    assert not is_reference(base_model(tmp_path / "two"))


@pytest.mark.parametrize("shared", [True, False])
def test_a_model_that_brings_a_reference_along_is_not_taken(
    volume: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shared: bool
) -> None:
    (volume / REFERENCE).write_text('{"model": "Other/Model", "files": {}}')
    if not shared:
        monkeypatch.delenv(BY_REFERENCE_VARIABLE)

    with pytest.raises(DataError, match=r"holds base_reference\.json"):
        base_model(tmp_path)
