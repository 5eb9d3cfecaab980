"""A file in, the same rows with their styles out; a row without an answer is named and kept."""

import json
from pathlib import Path
from typing import Any

import pytest

from qinglan.errors import ConfigError, DataError
from qinglan.style.file_prediction import CHUNK, predict_file, target_file
from qinglan.style.labels import format_training_text
from qinglan.style.model import StyleModel
from qinglan.tables.tables import read_table, write_table
from tests.models.tiny_style import tiny_style_model


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> StyleModel:
    return StyleModel.load(tiny_style_model(tmp_path_factory.mktemp("model")))


def write(path: Path, rows: list[Any]) -> Path:
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
    return path


def read(path: Path) -> list[Any]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def test_lines_in_lines_out_in_their_order_with_all_that_they_held(model: StyleModel, tmp_path: Path) -> None:
    texts = [format_training_text("一天吃几次" * (n % 7 + 1), "请按标签服用") for n in range(CHUNK + 40)]
    rows = [{"id": n, "text": text} for n, text in enumerate(texts)]

    counts = predict_file(model, write(tmp_path / "in.jsonl", rows), tmp_path / "out.jsonl")

    out = read(tmp_path / "out.jsonl")
    assert (counts.rows, counts.predicted, counts.faults) == (len(rows), len(rows), ())
    assert [(row["id"], row["text"]) for row in out] == [(row["id"], row["text"]) for row in rows]
    for at in (0, 5, CHUNK + 3):
        [prediction] = model.predict([texts[at]])
        assert out[at]["predicted_label"] == prediction["predicted_label"]
        assert out[at]["probabilities"] == pytest.approx(prediction["probabilities"], abs=1e-5)


def test_a_sheet_in_and_a_sheet_out(model: StyleModel, tmp_path: Path) -> None:
    with write_table(tmp_path / "in.xlsx", ("编号", "问题", "回答")) as add:
        for number in range(5):
            add((number, f"一天吃{number}次？", "请按标签服用"))

    predict_file(model, tmp_path / "in.xlsx", tmp_path / "out.xlsx")

    rows = [cells for _, cells in read_table(tmp_path / "out.xlsx", ("编号", "predicted_label", "p(无伤害)"))]
    assert [row["编号"] for row in rows] == list(range(5))
    for row in rows:
        assert sum(float(str(row[f"p({name})"])) for name in model.labels.names) == pytest.approx(1, abs=1e-4)


def test_a_row_without_an_answer_is_kept_with_its_fault(model: StyleModel, tmp_path: Path) -> None:
    good = {"text": format_training_text("好吗", "很好")}
    rows: list[Any] = [good, {"id": 2}, {"text": "  "}, {"text": [3]}, good]

    counts = predict_file(model, write(tmp_path / "in.jsonl", rows), tmp_path / "out.jsonl")

    out = read(tmp_path / "out.jsonl")
    assert (counts.rows, counts.predicted) == (5, 2)
    assert [("predicted_label" in row, row.get("fault", "")[:10]) for row in out] == [
        (True, ""), (False, "no text; g"), (False, "text is em"), (False, "text is no"), (True, "")
    ]  # fmt: skip
    assert [fault.split(":")[0] for fault in counts.faults] == ["line 2", "line 3", "line 4"]


def test_a_file_that_was_answered_before_is_answered_anew(model: StyleModel, tmp_path: Path) -> None:
    first = write(tmp_path / "in.jsonl", [{"id": 1, "text": format_training_text("好吗", "很好")}, {"id": 2}])
    predict_file(model, first, tmp_path / "once.xlsx")
    [(_, good), (_, bad)] = read_table(tmp_path / "once.xlsx")
    again = [{**good, "text": ""}, {**bad, "text": format_training_text("好吗", "很好")}]

    predict_file(model, write(tmp_path / "again.jsonl", again), tmp_path / "twice.jsonl")

    failed, mended = read(tmp_path / "twice.jsonl")
    assert "predicted_label" not in failed and "p(诚实)" not in failed and failed["fault"]
    assert mended["predicted_label"] and "fault" not in mended


def test_names_must_say_what_the_files_are(tmp_path: Path) -> None:
    source = write(tmp_path / "in.txt", [{"text": "a"}])

    assert target_file(source, None) == tmp_path / "in-style.jsonl"
    assert target_file(source, tmp_path / "out.xlsx") == tmp_path / "out.xlsx"
    with pytest.raises(ConfigError, match=r"--out .*out\.txt: ends neither in \.jsonl nor in \.xlsx"):
        target_file(source, tmp_path / "out.txt")
    with pytest.raises(DataError, match="no such file"):
        target_file(tmp_path / "other.jsonl", None)
    with pytest.raises(DataError, match=f"{tmp_path}: is a folder. Name the file in it"):
        target_file(tmp_path, None)


def test_a_column_that_a_spreadsheet_would_run_is_written_as_text(model: StyleModel, tmp_path: Path) -> None:
    row = {"text": format_training_text("好吗", "很好"), "=HYPERLINK(1)": "a\uffff"}

    predict_file(model, write(tmp_path / "in.jsonl", [row]), tmp_path / "out.xlsx")
    predict_file(model, tmp_path / "out.xlsx", tmp_path / "again.xlsx")

    for name in ("out.xlsx", "again.xlsx"):
        [(_, cells)] = read_table(tmp_path / name)
        assert cells["'=HYPERLINK(1)"] == "a "
