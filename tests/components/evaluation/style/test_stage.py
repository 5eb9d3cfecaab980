"""From two folders to a verdict: an untrained model is held, and what does not belong together is named."""

from pathlib import Path
from typing import Any

import orjson
import pytest

from components.evaluation.style import stage
from qinglan.errors import DataError
from qinglan.evaluation.gates.evaluation_file import Outputs, read_evaluation
from qinglan.evaluation.gates.style_gate import GateStyleConfig, decide
from qinglan.files.files import sha256_file
from qinglan.style.labels import Labels, format_training_text, write_mapping
from qinglan.style.model import StyleCard, StyleModel, write_card
from qinglan.style.rows import StyleRow, question_only_text
from tests.components.evaluation.style.sample_predictions import CONFIG, sample_rows, write_rows
from tests.models.tiny_style import tiny_style_model


def outputs(folder: Path) -> Outputs:
    return Outputs(*(folder / name for name in ("e.json", "r.html", "p.jsonl", "b.xlsx", "k.json")))


def model_of(folder: Path, rows: Path, temperature: float = 1.3) -> Path:
    tiny_style_model(folder)
    parents = {part: sha256_file(rows / f"{part}.jsonl") for part in ("train", "dev")}
    write_card(folder, StyleCard(stage="style", temperature=temperature, parents=parents))
    return folder


def as_a_step(rows: Path, model: Path, folder: Path) -> tuple[Outputs, dict[str, Any], dict[str, Any]]:
    """Evaluated as the orchestrator does it: where everything went, the metrics, the confusion matrix."""
    from kfp import dsl

    from components.evaluation.style.component import evaluate_style

    out = outputs(folder)
    metrics, classification = (
        kind(name="m", uri=str(folder / "m")) for kind in (dsl.Metrics, dsl.ClassificationMetrics)
    )
    (folder / "before").mkdir()
    evaluate_style.python_func(
        dsl.Artifact(name="before", uri=str(folder / "before")),
        dsl.Dataset(name="style_rows", uri=str(rows)), dsl.Model(name="style_model", uri=str(model)),
        CONFIG.model_dump(mode="json"), dsl.Artifact(name="evaluation", uri=str(out.evaluation)),
        dsl.Dataset(name="predictions", uri=str(out.predictions)),
        dsl.Dataset(name="blind_sample", uri=str(out.blind_sample)),
        dsl.Artifact(name="blind_key", uri=str(out.blind_key)), dsl.HTML(name="report", uri=str(out.report)),
        dsl.Markdown(name="summary", uri=str(folder / "summary.md")), metrics, classification,
        dsl.Artifact(name="lineage", uri=str(folder / "lineage")),
    )  # fmt: skip
    assert [path.name for path in (folder / "lineage").glob("evaluate-*.dsse.json")], "the step has signed"
    assert "**Hold" in (folder / "summary.md").read_text(encoding="utf-8")
    return out, metrics.metadata, classification.metadata


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("style")
    rows = write_rows(folder / "rows")
    return rows, model_of(folder / "model", rows)


@pytest.mark.slow
def test_an_untrained_model_is_held_with_everything_written(world: tuple[Path, Path], tmp_path: Path) -> None:
    rows, model = world

    out, metrics, classification = as_a_step(rows, model, tmp_path)

    result = orjson.loads(out.evaluation.read_bytes())
    assert result["counts"] == {"rows": 210, "groups": 210, "training_rows": 390, "judged_models": 0, "promote": 0}
    assert [row["row"] for row in classification["confusionMatrix"]["rows"]] == result["systems"]["model"][
        "confusion"
    ]
    assert result["verdict"]["word"] == "hold"
    assert any("Worse than the baseline" in reason for reason in result["verdict"]["reasons"])
    assert "digests.parents.base_model is not in the evaluation." in result["verdict"]["reasons"]
    assert {part: overlap["rows"] for part, overlap in result["leaks"]["parts"].items()} == {"train": 360, "dev": 30}
    assert decide(read_evaluation(out.evaluation), GateStyleConfig()).word == "hold"
    assert result["digests"]["rows"]["train"] == sha256_file(rows / "train.jsonl")
    assert result["systems"]["before"]["accuracy"] == result["systems"]["model"]["accuracy"]
    lines = [orjson.loads(line) for line in out.predictions.read_bytes().splitlines()]
    predicted = StyleModel.load(model).predict([row.input for row in sample_rows()[390:600]])
    assert [line["model"]["predicted"] for line in lines] == [
        prediction["predicted_label"] for prediction in predicted
    ]
    assert lines[0]["question_alone"].keys() == lines[0]["baseline"]["probabilities"].keys()
    assert "Hold: the style model" in out.report.read_text(encoding="utf-8")
    assert set(metrics) == set(stage.FIGURES.values())
    assert metrics["macro F1 gain over baseline, points"] < 0 and metrics["promoted, 1 or 0"] == 0


def test_a_leak_stops_everything_before_a_model_is_loaded(tmp_path: Path) -> None:
    sample = sample_rows(60)
    rows = write_rows(tmp_path / "rows", [*sample[:50], sample[3]], {"train": 40, "dev": 10, "test": 1})

    with pytest.raises(DataError, match="1 rows of the locked test"):
        stage.evaluate(rows, tmp_path / "none", outputs(tmp_path), CONFIG)
    assert not (tmp_path / "e.json").exists()


def test_a_model_trained_on_other_rows_is_refused(world: tuple[Path, Path], tmp_path: Path) -> None:
    rows = write_rows(tmp_path / "rows", sample_rows(600, seed=9))

    with pytest.raises(DataError, match="Evaluate with the rows it was trained on"):
        stage.evaluate(rows, world[1], outputs(tmp_path), CONFIG)


@pytest.mark.parametrize("part", ["train", "dev", "test"])
def test_an_empty_split_is_named(tmp_path: Path, part: str) -> None:
    rows = write_rows(tmp_path / "rows", sample_rows(30), {"train": 10, "dev": 10, "test": 10} | {part: 0})

    with pytest.raises(DataError, match=rf"{part}\.jsonl: no rows"):
        stage.evaluate(rows, tmp_path / "model", outputs(tmp_path), CONFIG)


@pytest.mark.slow
def test_labels_in_another_order_are_other_labels(world: tuple[Path, Path], tmp_path: Path) -> None:
    rows = write_rows(tmp_path / "rows")
    labels = StyleModel.load(world[1]).labels
    turned = [label.model_dump() | {"id": at} for at, label in enumerate(reversed(labels.labels))]
    write_mapping(rows, Labels.parse({"labels": turned}, "labels"))

    with pytest.raises(DataError, match="the model's labels are 售前"):
        stage.evaluate(rows, world[1], outputs(tmp_path), CONFIG)


def test_a_question_is_asked_about_without_its_answer() -> None:
    def row(text: Any) -> StyleRow:
        return StyleRow(id="t7", input=text, label="售前")

    assert question_only_text(row(format_training_text("能退吗", "可以\n回答：两次"))) == format_training_text(
        "能退吗", ""
    )
    for text in ("能退吗", "用户问题：能退吗", "能退吗\n回答：可以"):
        with pytest.raises(DataError, match="row t7: its input is not"):
            question_only_text(row(text))
