"""Bases of other architectures: decoders and encoders train, distil and export; the rest is refused by name."""

import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest

from components.data.style.config import PrepareStyleConfig
from components.data.style.stage import prepare
from components.training.style.base_model import SUPPORTED
from components.training.style.config import DistilConfig, StyleConfig
from components.training.style.distil import check_exportable, distil
from components.training.style.stage import StyleCounts, train_style
from qinglan.errors import ConfigError, DataError
from qinglan.models.model_files import disallowed_files
from qinglan.models.safetensors_header import count_parameters
from qinglan.style.model import ONNX_FILE, StyleModel
from qinglan.style.rows import read_split
from standins.samples.style import write_style_sample
from tests.models.style_bases import POSITIONS, make_base

CONFIG = StyleConfig(device="cpu", max_length=200, epochs=1, learning_rate=4e-3, batch=16, eval_batch=64, patience=0)


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("rows")
    write_style_sample(folder / "data", 300, seed=7)
    prepare(folder / "data", folder / "rows", folder / "page.html", PrepareStyleConfig())
    return folder / "rows"


@pytest.fixture(autouse=True)
def _scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QINGLAN_SCRATCH", str(tmp_path / "scratch"))


def texts_of(rows: Path) -> list[str]:
    return [row.input for row in read_split(rows, "train")[0]]


def train(base: Path, rows: Path, out: Path, **changes: Any) -> StyleCounts:
    return train_style(base, rows, out / "model", out / "log", CONFIG.model_copy(update=changes))


EACH_BASE = [pytest.param(name, marks=[] if name in ("bert", "qwen2") else pytest.mark.nightly) for name in SUPPORTED]
"""An encoder and a decoder in each run; the rest nightly."""


@pytest.mark.slow
@pytest.mark.parametrize("architecture", EACH_BASE)
def test_a_supported_base_trains_distils_and_says_the_same_as_int8(
    architecture: str, rows: Path, tmp_path: Path
) -> None:
    layers = 2 if architecture != "modernbert" else 3  # of ModernBERT's, one that is first, local and global each
    base = make_base(tmp_path / "base", architecture, texts_of(rows), layers=layers + 1)

    counts = train(base, rows, tmp_path, epochs=0.4)
    settings = DistilConfig(
        device="cpu", layers=layers, epochs=0.1, learning_rate=2e-3, batch=32, eval_batch=64, bound=0.2
    )
    small = distil(
        tmp_path / "model", rows, tmp_path / "student", tmp_path / "table.json", tmp_path / "log2", settings
    )

    assert counts.steps >= 5
    assert (small.layers, small.parameters) == (layers, count_parameters(tmp_path / "student"))
    assert small.parameters < small.teacher_parameters == count_parameters(tmp_path / "model")
    texts = [text * 3 for text in texts_of(rows)[:20]]  # longer than the window of local attention
    float32, int8 = (
        StyleModel.load(tmp_path / "student", engine).probabilities(texts) for engine in ("torch", "onnx")
    )
    assert np.abs(float32 - int8).max() <= settings.bound
    apart = float32 - float32.mean(axis=0)
    assert np.abs(apart).max() > 3 * np.abs(float32 - int8).mean() > 0, "another text, another answer, by both"
    assert disallowed_files(tmp_path / "student") == {}, "a release may hold it"
    graph = (tmp_path / "student" / ONNX_FILE).read_bytes()
    # A whole path: random weights hold the three bytes of .py in one run of fifty.
    assert not re.search(rb"/[\w./-]{4,}\.py", graph), "it names no file of the machine's"


@pytest.mark.slow
@pytest.mark.parametrize("architecture", ["qwen2", "bert", "modernbert"])
def test_adapters_are_merged_into_whole_weights(architecture: str, rows: Path, tmp_path: Path) -> None:
    base = make_base(tmp_path / "base", architecture, texts_of(rows), layers=2)

    train(base, rows, tmp_path, lora_rank=4, checkpointing=True, accumulation=2, batch=8, learning_rate=2e-3)

    trained, before = tensors(tmp_path / "model"), tensors(base)
    assert not [name for name in trained if "lora" in name or "base_layer" in name]
    changed = [name for name in trained if name in before and not np.array_equal(trained[name], before[name])]
    of_base = [name for name in changed if not name.startswith(("head.", "classifier.", "score."))]
    assert of_base and not [name for name in of_base if "embed" in name or "norm" in name.lower()]
    assert StyleModel.load(tmp_path / "model").probabilities(texts_of(rows)[:2]).shape == (2, 5)


def tensors(folder: Path) -> dict[str, Any]:
    from safetensors.numpy import load_file

    return dict(load_file(folder / "model.safetensors"))


@pytest.mark.slow
def test_accumulated_batches_are_a_step_of_all_their_rows(rows: Path, tmp_path: Path) -> None:
    """Without weights of labels the mean over a step's rows is the same, however they are cut into batches."""
    base = make_base(tmp_path / "base", "qwen2", texts_of(rows), layers=1)
    one_step = {"epochs": 0.05, "balance": "none", "warmup": 0.0, "answer_dropped": 0.0}

    whole = train(base, rows, tmp_path / "whole", batch=8, **one_step)
    parts = train(base, rows, tmp_path / "parts", batch=2, accumulation=4, **one_step)

    assert whole.steps == parts.steps >= 1
    first, second = tensors(tmp_path / "whole" / "model"), tensors(tmp_path / "parts" / "model")
    assert max(np.abs(first[name] - second[name]).max() for name in first) < 1e-4


@pytest.mark.slow
@pytest.mark.parametrize(
    ("architecture", "changes", "max_length", "reason"),
    [
        ("electra", {}, 200, r"a model of type 'electra'. The style line .* qwen2, qwen3, bert"),
        ("bert", {"vocab_size": 500}, 200, r"its tokenizer has [\d,]+ tokens, and its weights 500"),
        ("bert", {}, POSITIONS + 1, f"reads {POSITIONS} tokens at most, and style.max_length is {POSITIONS + 1}"),
        ("roberta", {}, POSITIONS + 1, f"reads {POSITIONS} tokens at most"),
    ],
)
def test_a_base_that_does_not_fit_is_refused_by_name(
    architecture: str, changes: dict[str, int], max_length: int, reason: str, rows: Path, tmp_path: Path
) -> None:
    base = make_base(tmp_path / "base", architecture, texts_of(rows), layers=1, **changes)

    with pytest.raises(DataError, match=reason):
        train(base, rows, tmp_path, max_length=max_length)


def test_a_tokenizer_that_cannot_read_the_rows_is_refused(rows: Path, tmp_path: Path) -> None:
    base = make_base(tmp_path / "base", "bert", ["only English words were read here"] * 20, layers=1)

    with pytest.raises(DataError, match=r"cannot read the training texts: .* of all unknown"):
        train(base, rows, tmp_path)


@pytest.mark.slow
def test_a_tokenizer_without_a_pad_token_is_refused(rows: Path, tmp_path: Path) -> None:
    base = make_base(tmp_path / "base", "bert", texts_of(rows), layers=1)
    settings = orjson.loads((base / "tokenizer_config.json").read_bytes())
    del settings["pad_token"]
    (base / "tokenizer_config.json").write_bytes(orjson.dumps(settings))

    with pytest.raises(DataError, match="neither a pad token nor an end token"):
        train(base, rows, tmp_path)


@pytest.mark.slow
def test_weights_of_another_shape_or_half_of_them_are_refused(rows: Path, tmp_path: Path) -> None:
    base = make_base(tmp_path / "base", "bert", texts_of(rows), layers=1)
    deeper = make_base(tmp_path / "deeper", "bert", texts_of(rows), layers=2)
    shutil.copy(base / "model.safetensors", deeper / "model.safetensors")
    cut = make_base(tmp_path / "cut", "bert", texts_of(rows), layers=1) / "model.safetensors"
    cut.write_bytes(cut.read_bytes()[:5000])

    with pytest.raises(DataError, match=r"lack \d+ tensors of a bert model, such as bert.encoder.layer.1"):
        train(deeper, rows, tmp_path)
    with pytest.raises(DataError, match="no base model that transformers opens"):
        train(tmp_path / "cut", rows, tmp_path)


def test_a_student_that_no_onnx_file_holds_is_refused_before_its_training() -> None:
    check_exportable(500_000_000)

    with pytest.raises(ConfigError, match=r"distil.layers: .* 2.8 GiB as a float graph"):
        check_exportable(750_000_000)
