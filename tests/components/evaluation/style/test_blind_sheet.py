"""The blind sample: the sheet shows no label, its order is random, and the result is weighted to the whole test."""

from pathlib import Path
from typing import Any

import orjson
import pytest

from components.evaluation.style.blind_sheet import (
    human_labels_markdown,
    read_human_labels,
    stratified_sample,
    write_blind_sheet,
)
from qinglan.errors import DataError
from qinglan.tables.tables import read_table, write_table
from tests.components.evaluation.style.sample_predictions import NAMES, predictions, rows_of, table

TABLE = table(200, model=0.7)
ROWS = rows_of(TABLE)
PREDICTIONS = predictions(TABLE, ROWS)
LABEL = {row.id: row.label for row in ROWS}
MODEL = {line["id"]: line["model"]["predicted"] for line in PREDICTIONS}


class Sheets:
    """A sample in a folder, and people who fill it in."""

    def __init__(self, folder: Path, rows: Any = ROWS, lines: Any = PREDICTIONS, seed: int = 0) -> None:
        self.sheet, self.key, self.predictions = folder / "blind.xlsx", folder / "key.json", folder / "p.jsonl"
        self.predictions.write_bytes(b"".join(orjson.dumps(line) + b"\n" for line in lines))
        write_blind_sheet(rows, lines, self.sheet, self.key, 40, seed)
        self.rows = [cells for _, cells in read_table(self.sheet)]

    def read(self, labels: dict[str, Any], **changes: Any) -> dict[str, Any]:
        """The result of rows that get the label of their id; `changes` are put into the first row."""
        key, filled = orjson.loads(self.key.read_bytes()), self.sheet.with_name("filled.xlsx")
        for cells in self.rows:
            cells["人工标签"] = labels.get(key[str(cells["编号"])]["id"])
        self.rows[0].update(changes)
        with write_table(filled, list(self.rows[0])) as add:
            for cells in self.rows:
                add(list(cells.values()))
        return read_human_labels(filled, self.key, self.predictions, draws=200)


def test_the_sheet_holds_texts_and_allowed_labels_and_no_label(tmp_path: Path) -> None:
    rows, texts = Sheets(tmp_path).rows, {row.input for row in ROWS}

    assert len(rows) == 40
    assert list(rows[0]) == ["编号", "问答", "人工标签", "可选标签"]
    assert {(cells["可选标签"], cells["人工标签"]) for cells in rows} == {(" / ".join(NAMES), None)}
    assert all(cells["问答"] in texts for cells in rows)


def test_half_differ_labels_are_even_and_the_order_is_random() -> None:
    drawn = stratified_sample(PREDICTIONS, 40, 0)
    differs = [LABEL[row["id"]] != MODEL[row["id"]] for row in drawn]

    assert sum(differs) == 20
    assert {name: sum(LABEL[row["id"]] == name for row in drawn) for name in NAMES} == dict.fromkeys(NAMES, 8)
    assert len({row["id"] for row in drawn}) == 40
    assert 6 <= sum(differs[:20]) <= 14
    assert stratified_sample(PREDICTIONS, 40, 0) == drawn != stratified_sample(PREDICTIONS, 40, 1)


def test_where_few_differ_the_rest_fills_the_sheet_and_a_small_test_is_drawn_whole() -> None:
    alike = [line | {"label": line["model"]["predicted"]} for line in PREDICTIONS]

    assert [len(stratified_sample(lines, 40, 0)) for lines in (alike, PREDICTIONS[:7], [])] == [40, 7, 0]


def test_people_who_label_as_the_data_agree_with_the_model_as_the_whole_test_does(tmp_path: Path) -> None:
    result = Sheets(tmp_path).read(LABEL)

    assert (result["rows"], result["of"]) == (40, 40)
    assert result["data_and_people"]["agreement"]["value"] == result["data_and_people"]["kappa"]["value"] == 1
    accuracy = sum(MODEL[row] == LABEL[row] for row in LABEL) / len(LABEL)
    for pair in ("model_and_people", "model_and_data"):
        share, kappa = result[pair]["agreement"], result[pair]["kappa"]
        assert share["value"] == pytest.approx(accuracy), "half of the sheet is where they differ, the test is not"
        assert share["low"] < share["value"] < share["high"]
        assert 0 < kappa["low"] < kappa["value"] < share["value"]


def test_people_who_label_as_the_model_find_the_data_wrong(tmp_path: Path) -> None:
    result = Sheets(tmp_path).read(MODEL)

    assert result["model_and_people"]["agreement"]["value"] == 1
    assert result["data_and_people"]["agreement"] == result["model_and_data"]["agreement"]
    assert sum(sum(row.values()) for row in result["counts"].values()) == 40
    assert "| model and people | 100.0% [100.0%, 100.0%] | 1.000" in human_labels_markdown(result)


def test_empty_cells_are_left_out_and_spaces_do_not_count(tmp_path: Path) -> None:
    result = Sheets(tmp_path).read({row: f" {label} " for row, label in list(LABEL.items())[:120]})

    assert 0 < result["rows"] < 40
    assert result["data_and_people"]["agreement"]["value"] == 1


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"人工标签": "幽默"}, "row 2: 人工标签 is '幽默'. Write one of 售前"),
        ({"问答": "用户问题：别的\n回答：别的"}, "row 2: its texts are not those of the key"),
        ({"编号": 99}, "row 2: 编号 '99' is not in the key"),
        ({"编号": 2}, "编号 2 stands there twice"),
    ],
)
def test_a_row_that_was_changed_is_named(tmp_path: Path, changes: dict[str, Any], reason: str) -> None:
    with pytest.raises(DataError, match=reason):
        Sheets(tmp_path).read(LABEL, **changes)


@pytest.mark.slow
def test_another_key_other_predictions_and_no_labels_are_refused(tmp_path: Path) -> None:
    sheets = Sheets(tmp_path)
    (tmp_path / "other").mkdir()
    other = Sheets(tmp_path / "other", seed=1)

    with pytest.raises(DataError, match="Fill the column 人工标签"):
        sheets.read({})
    sheets.key, own_key = other.key, sheets.key
    with pytest.raises(DataError, match="Use the key of this very sheet"):
        sheets.read(LABEL)
    sheets.key = own_key
    sheets.predictions.write_bytes(orjson.dumps(PREDICTIONS[0] | {"id": "another"}))
    with pytest.raises(DataError, match="is not in the predictions"):
        sheets.read(LABEL)
