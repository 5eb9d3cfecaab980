"""Real trainings of a tiny classifier: the plan's 26 rows, a kill in the middle, a smaller model, int8."""

import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import orjson
import pytest

from components.data.style.config import PrepareStyleConfig
from components.data.style.stage import prepare
from components.evaluation.style.config import EvaluateStyleConfig
from components.evaluation.style.probabilities import TeacherFiles
from components.evaluation.style.stage import evaluate
from components.training.base.config import BaseConfig, TinyConfig
from components.training.base.stage import text_base
from components.training.style import distil as distil_module
from components.training.style.config import DistilConfig, StyleConfig
from components.training.style.distil import DistilCounts, compare, distil
from components.training.style.stage import train_style
from qinglan.errors import DataError, TrainingError
from qinglan.evaluation.gates.evaluation_file import Outputs
from qinglan.files.digests import digest
from qinglan.files.files import sha256_file
from qinglan.models.model_files import disallowed_files
from qinglan.models.safetensors_header import count_parameters
from qinglan.style.model import ONNX_FILE, StyleModel, read_card
from qinglan.style.rows import CROSS_FITTED_FILE, FOLDS_FILE, read_folds, read_split
from standins.samples.style import write_style_sample
from tests.processes.forkserver import KILL, forked

pytestmark = pytest.mark.slow
TINY = TinyConfig(vocabulary=900, hidden=32, layers=2, heads=2, steps=30, batch=16)
CONFIG = StyleConfig(
    device="cpu", max_length=256, epochs=3, learning_rate=4e-3, batch=16, eval_batch=64, patience=0, smoothing=0.1,
    evaluations=2, demo_inference=True,
)  # fmt: skip
SMALLER = DistilConfig(device="cpu", layers=1, epochs=1, learning_rate=2e-3, batch=32, eval_batch=64)


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Prepared rows and a tiny base."""
    folder = tmp_path_factory.mktemp("style")
    os.environ["QINGLAN_CACHE"] = str(folder / "cache")
    try:
        write_style_sample(folder / "data", 600, seed=7)
        prepare(folder / "data", folder / "rows", folder / "page.html", PrepareStyleConfig())
        text_base(folder / "rows", folder / "base", BaseConfig(source="tiny", tiny=TINY))
    finally:
        del os.environ["QINGLAN_CACHE"]
    return folder


@pytest.fixture(scope="module", autouse=True)
def _one_scratch(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Whoever wants the model that CONFIG makes gets what was trained first: nothing is trained twice."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("QINGLAN_SCRATCH", str(tmp_path_factory.mktemp("scratch")))
        yield


def trained(inputs: Path, out: Path, **changes: Any) -> Any:
    config = CONFIG.model_copy(update=changes)
    return train_style(inputs / "base", inputs / "rows", out / "model", out / "log", config)


def test_a_training_leaves_a_whole_model_its_log_and_its_parents(inputs: Path, tmp_path: Path) -> None:
    counts = trained(inputs, tmp_path)

    model, card = StyleModel.load(tmp_path / "model"), read_card(tmp_path / "model")
    mapping = json.loads((tmp_path / "model" / "label_mapping.json").read_bytes())
    assert mapping["id_to_label"] == {"0": "售前", "1": "售后", "2": "诚实", "3": "有帮助", "4": "无伤害"}
    assert {path.name for path in (tmp_path / "model").iterdir()} >= {
        "config.json", "model.safetensors", "tokenizer.json", "label_mapping.json", "style.json"
    }  # fmt: skip
    assert card.parents["train"] == sha256_file(inputs / "rows" / "train.jsonl")
    assert card.parents["base_model"] == digest(inputs / "base")
    assert card.temperature == counts.temperature != 1
    rows, _ = read_split(inputs / "rows", "dev")
    predictions = model.predict([row.input for row in rows])
    right = [prediction["predicted_label"] == row.label for prediction, row in zip(predictions, rows, strict=True)]
    assert np.mean(right) == pytest.approx(counts.accuracy)
    assert counts.accuracy > 0.35  # of five labels: it has learned something
    demo = [orjson.loads(line) for line in (tmp_path / "log" / "demo.jsonl").read_bytes().splitlines()]
    assert len(demo) == 5 and set(demo[0]) >= {"input", "label", "predicted_label", "confidence", "probabilities"}
    assert "dev macro-F1" in (tmp_path / "log" / "curve.svg").read_text()
    assert list((tmp_path / "log" / "tensorboard").glob("events.out.tfevents*"))
    assert trained(inputs, tmp_path / "again").reused == 1
    assert digest(tmp_path / "again" / "model") == digest(tmp_path / "model")


def test_the_plans_26_rows_get_an_honest_verdict_by_cross_fitting(tmp_path: Path, inputs: Path) -> None:
    from tests.components.data.test_style import PLANS, answers

    (tmp_path / "in.json").write_text(json.dumps(answers(PLANS), ensure_ascii=False), encoding="utf-8")
    rows, model = tmp_path / "rows", tmp_path / "model"
    counts = prepare(tmp_path / "in.json", rows, tmp_path / "page.html", PrepareStyleConfig(cross_fit_below=200))
    assert (counts.train, counts.dev, counts.test) == (21, 5, 0)

    train_style(inputs / "base", rows, model, tmp_path / "log", StyleConfig(device="cpu", max_length=64))
    answered = orjson.loads((model / CROSS_FITTED_FILE).read_bytes())
    assert disallowed_files(model) == {}, "a release may hold all of it"
    assert {row["id"]: row["fold"] for row in answered} == read_folds(rows) and len(answered) == 26
    assert read_card(model).cross_fitted == 5

    out = Outputs(*(tmp_path / name for name in ("evaluation.json", "r.html", "p.jsonl", "blind.xlsx", "key.json")))
    evaluate(rows, model, out, EvaluateStyleConfig(draws=1_000))
    evaluation = orjson.loads(out.evaluation.read_bytes())
    assert (evaluation["counts"]["rows"], evaluation["cross_fitted"]) == (26, {"folds": 5})
    assert evaluation["leaks"]["parts"]["train"]["rows"] == 21
    first, *reasons = evaluation["verdict"]["reasons"]
    assert first.startswith(
        "Cross-fitted: 26 rows, each judged by one of 5 models that did not learn from it: macro F1"
    )
    assert evaluation["verdict"]["word"] == "hold" and not any("Too few" in reason for reason in reasons)
    page = out.report.read_text(encoding="utf-8")
    assert "26 cross-fitted answers, each judged by one of 5 models" in page and "no test was locked away" in page

    with pytest.raises(DataError, match="leave no test for a distilled model"):
        evaluate(rows, model, out, EvaluateStyleConfig(draws=1_000), TeacherFiles(out.evaluation, out.predictions))
    with pytest.raises(DataError, match="leave no test for a distilled model"):
        distil(
            model, rows, tmp_path / "small", tmp_path / "table", tmp_path / "small-log", DistilConfig(device="cpu")
        )
    assert not (tmp_path / "small-log").exists()
    (rows / FOLDS_FILE).write_bytes(orjson.dumps(dict.fromkeys(read_folds(rows), 1)))
    with pytest.raises(DataError, match="was not judged by the model of its fold"):
        evaluate(rows, model, out, EvaluateStyleConfig(draws=1_000))


def test_a_killed_training_goes_on_and_ends_as_one_that_was_not(
    inputs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = trained(inputs, tmp_path / "whole")
    scratch = tmp_path / "killed-scratch"
    monkeypatch.setenv("QINGLAN_SCRATCH", str(scratch))
    words = [str(inputs), str(tmp_path / "killed"), CONFIG.model_dump_json()]
    command = forked("tests.components.training.style.style_training", *words)
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        until = time.monotonic() + 600
        while not list(scratch.glob("style/*/checkpoints/checkpoint-*/trainer_state.json")):
            assert time.monotonic() < until and process.poll() is None
            time.sleep(0.02)
        process.send_signal(KILL)
    assert not (tmp_path / "killed" / "model").exists()

    resumed = trained(inputs, tmp_path / "killed")

    assert (resumed.reused, resumed.steps) == (0, whole.steps)
    rows, _ = read_split(inputs / "rows", "dev")
    texts = [row.input for row in rows]
    models = (StyleModel.load(tmp_path / name / "model") for name in ("whole", "killed"))
    expected, after_kill = (model.probabilities(texts) for model in models)
    assert np.abs(expected - after_kill).max() < 1e-3
    assert whole.steps > 10
    steps = [orjson.loads(line)["step"] for line in (tmp_path / "killed/log/metrics.jsonl").read_bytes().splitlines()]
    assert steps[0] <= whole.steps / 6 and steps[-1] == whole.steps


def test_other_labels_are_another_training_and_no_student_of_this_teacher(inputs: Path, tmp_path: Path) -> None:
    trained(inputs, tmp_path)
    shutil.copytree(inputs / "rows", tmp_path / "rows")
    mapping = tmp_path / "rows" / "label_mapping.json"
    mapping.write_text(mapping.read_text(encoding="utf-8").replace("harmless", "kind"), encoding="utf-8")

    with pytest.raises(DataError, match="learned from other labels"):
        distil(
            tmp_path / "model", tmp_path / "rows", tmp_path / "student", tmp_path / "table", tmp_path / "log2",
            DistilConfig(device="cpu"),
        )  # fmt: skip
    config = CONFIG.model_copy(update={"epochs": 0.2})
    counts = train_style(inputs / "base", tmp_path / "rows", tmp_path / "other", tmp_path / "log3", config)
    assert counts.reused == 0
    assert StyleModel.load(tmp_path / "other").labels.labels[4].english == "kind"


def test_a_base_that_is_a_pickle_is_refused(inputs: Path, tmp_path: Path) -> None:
    (tmp_path / "base").mkdir()
    (tmp_path / "base" / "pytorch_model.bin").write_bytes(b"\x80\x04.")

    with pytest.raises(DataError, match=r"pytorch_model.bin, a pickle"):
        train_style(tmp_path / "base", inputs / "rows", tmp_path / "model", tmp_path / "log", CONFIG)


class Distilled(NamedTuple):
    """A smaller model, and what its distillation says."""

    out: Path
    counts: DistilCounts


@pytest.fixture(scope="module")
def distilled(inputs: Path, tmp_path_factory: pytest.TempPathFactory) -> Distilled:
    out = tmp_path_factory.mktemp("distilled")
    trained(inputs, out)
    return Distilled(out, distil_to(out, inputs, SMALLER))


def distil_to(out: Path, inputs: Path, config: DistilConfig) -> DistilCounts:
    return distil(out / "model", inputs / "rows", out / "student", out / "table.json", out / "log2", config)


def test_a_smaller_model_learns_from_the_larger_and_its_int8_form_says_the_same(
    inputs: Path, distilled: Distilled
) -> None:
    out, counts = distilled

    assert counts.texts == len(read_split(inputs / "rows", "train")[0]) + 1200
    assert (counts.layers, counts.parameters) == (1, count_parameters(out / "student"))
    assert counts.parameters < counts.teacher_parameters == count_parameters(out / "model")
    assert 0 < counts.int8_difference <= SMALLER.bound
    teacher, student, _ = compare(out / "model", out / "student", inputs / "rows")
    assert student.megabytes < teacher.megabytes
    texts = [row.input for row in read_split(inputs / "rows", "test")[0]]
    small = StyleModel.load(out / "student", "onnx")
    both = [StyleModel.load(out / "student", "torch").probabilities(texts), small.probabilities(texts)]
    assert (small.probabilities(texts[:1]) == both[1][:1]).all(), "an int8 answer does not depend on the other texts"
    assert np.abs(both[0] - both[1]).max() <= 2 * SMALLER.bound
    assert (both[0].argmax(-1) == both[1].argmax(-1)).mean() > 0.95
    assert read_card(out / "student").parents["teacher"] == digest(out / "model")


def test_an_int8_form_that_says_something_else_is_no_release(
    inputs: Path, distilled: Distilled, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its int8 form is the other student's: an export takes seconds."""
    earlier = distilled.out / "student" / ONNX_FILE
    monkeypatch.setattr(distil_module, "export_int8", lambda folder, target: shutil.copy(earlier, target))
    trained(inputs, tmp_path)

    with pytest.raises(TrainingError, match=r"differ by up to .* Serve the float model"):
        distil_to(tmp_path, inputs, SMALLER.model_copy(update={"epochs": 0.1, "bound": 1e-6}))
    assert not (tmp_path / "student").exists()
