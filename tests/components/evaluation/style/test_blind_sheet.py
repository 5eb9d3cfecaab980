"""The blind sample: nobody sees what was said, the order tells nothing, and what comes back is of the whole test."""

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
SAID = predictions(TABLE, ROWS)
LABEL = {row.id: row.label for row in ROWS}
MODEL = {line["id"]: line["model"]["predicted"] for line in SAID}


class Sheets:
    """A sample in a folder, and people who fill it in."""

    def __init__(self, folder: Path, wanted: int = 40, seed: int = 0) -> None:
        self.sheet, self.key, self.predictions = folder / "blind.xlsx", folder / "key.json", folder / "p.jsonl"
        self.predictions.write_bytes(b"".join(orjson.dumps(line) + b"\n" for line in SAID))
        write_blind_sheet(ROWS, SAID, self.sheet, self.key, wanted, seed)
        self.folder, self.kept = folder, orjson.loads(self.key.read_bytes())

    def filled(self, labels: dict[str, Any], **changes: Any) -> Path:
        """Each row gets the label of its id; `changes` are put into the first row."""
        rows = [cells for _, cells in read_table(self.sheet)]
        for cells in rows:
            cells["人工标签"] = labels.get(self.kept[str(cells["编号"])]["id"])
        rows[0].update(changes)
        with write_table(self.folder / "filled.xlsx", list(rows[0])) as add:
            for cells in rows:
                add(list(cells.values()))
        return self.folder / "filled.xlsx"

    def read(self, filled: Path) -> dict[str, Any]:
        return read_human_labels(filled, self.key, self.predictions, draws=200)


def test_the_sheet_holds_texts_and_allowed_labels_and_nothing_that_was_said(tmp_path: Path) -> None:
    sheets = Sheets(tmp_path)

    rows = [cells for _, cells in read_table(sheets.sheet)]

    assert len(rows) == 40
    assert list(rows[0]) == ["编号", "问答", "人工标签", "可选标签"]
    assert {cells["可选标签"] for cells in rows} == {" / ".join(NAMES)}
    assert {cells["人工标签"] for cells in rows} == {None}
    texts = {row.input for row in ROWS}
    assert all(cells["问答"] in texts for cells in rows)


def test_half_differ_labels_are_even_and_the_order_tells_neither() -> None:
    drawn = stratified_sample(SAID, 40, 0)
    differs = [LABEL[row["id"]] != MODEL[row["id"]] for row in drawn]

    assert sum(differs) == 20
    assert {name: sum(LABEL[row["id"]] == name for row in drawn) for name in NAMES} == dict.fromkeys(NAMES, 8)
    assert len({row["id"] for row in drawn}) == 40
    assert 6 <= sum(differs[:20]) <= 14
    assert stratified_sample(SAID, 40, 0) == drawn != stratified_sample(SAID, 40, 1)


def test_where_few_differ_the_others_fill_the_sheet_and_a_small_test_is_drawn_whole() -> None:
    alike = [line | {"label": line["model"]["predicted"]} for line in SAID]

    assert len(stratified_sample(alike, 40, 0)) == 40
    assert len(stratified_sample(SAID[:7], 40, 0)) == 7
    assert stratified_sample([], 40, 0) == []


def test_people_who_label_as_the_data_agree_with_it_and_with_the_model_as_the_whole_test_does(tmp_path: Path) -> None:
    sheets = Sheets(tmp_path)

    result = sheets.read(sheets.filled(LABEL))

    assert (result["rows"], result["of"]) == (40, 40)
    assert result["data_and_people"]["agreement"]["value"] == result["data_and_people"]["kappa"]["value"] == 1
    accuracy = sum(MODEL[one] == LABEL[one] for one in LABEL) / len(LABEL)
    for pair in ("model_and_people", "model_and_data"):
        one = result[pair]["agreement"]
        assert one["value"] == pytest.approx(accuracy), "half of the sheet is where they differ, the test is not"
        assert one["low"] < one["value"] < one["high"]
        assert 0 < result[pair]["kappa"]["low"] < result[pair]["kappa"]["value"] < one["value"]


def test_people_who_label_as_the_model_find_the_data_wrong(tmp_path: Path) -> None:
    sheets = Sheets(tmp_path)

    result = sheets.read(sheets.filled(MODEL))
    text = human_labels_markdown(result)

    assert result["model_and_people"]["agreement"]["value"] == 1
    assert result["data_and_people"]["agreement"] == result["model_and_data"]["agreement"]
    assert sum(sum(row.values()) for row in result["counts"].values()) == 40
    assert "**40 of 40 rows labelled by people**" in text
    assert "| model and people | 100.0% [100.0%, 100.0%] | 1.000" in text


def test_cells_left_empty_are_left_out_and_spaces_do_not_count(tmp_path: Path) -> None:
    sheets = Sheets(tmp_path)
    some = dict(list(LABEL.items())[:120])

    result = sheets.read(sheets.filled({one: f" {label} " for one, label in some.items()}))

    assert 0 < result["rows"] < 40
    assert result["data_and_people"]["agreement"]["value"] == 1


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"人工标签": "幽默"}, "row 2: 人工标签 is '幽默'. Write one of 售前"),
        ({"问答": "用户问题：别的\n回答：别的"}, "row 2: its texts are not those of the key"),
        ({"编号": 99}, "row 2: 编号 '99' is not in the key"),
        ({"编号": 2}, "编号 2 stands there twice"),
    ],
)
def test_a_row_that_is_not_as_it_was_is_named(tmp_path: Path, changes: dict[str, Any], said: str) -> None:
    sheets = Sheets(tmp_path)

    with pytest.raises(DataError, match=said):
        sheets.read(sheets.filled(LABEL, **changes))


@pytest.mark.slow
def test_another_key_other_predictions_and_no_labels_are_refused(tmp_path: Path) -> None:
    sheets = Sheets(tmp_path)
    (tmp_path / "other").mkdir()
    other = Sheets(tmp_path / "other", seed=1)

    with pytest.raises(DataError, match="Use the key of this very sheet"):
        read_human_labels(sheets.filled(LABEL), other.key, sheets.predictions)
    with pytest.raises(DataError, match="Fill the column 人工标签"):
        sheets.read(sheets.filled({}))
    sheets.predictions.write_bytes(orjson.dumps(SAID[0] | {"id": "another"}))
    with pytest.raises(DataError, match="is not in the predictions"):
        sheets.read(sheets.filled(LABEL))


def test_a_formula_in_an_answer_stays_text_and_is_still_recognised(tmp_path: Path) -> None:
    hostile = ROWS[0].model_copy(update={"input": '=HYPERLINK("http://x","y")'})
    sheets = Sheets(tmp_path)
    write_blind_sheet([hostile], SAID[:1], sheets.sheet, sheets.key, 5, 0)
    sheets.kept = orjson.loads(sheets.key.read_bytes())

    [(_, cells)] = read_table(sheets.sheet)
    assert cells["问答"] == '\'=HYPERLINK("http://x","y")'
    assert sheets.read(sheets.filled(LABEL))["rows"] == 1
