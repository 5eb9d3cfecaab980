"""The blind sample: the sheet does not show which system wrote a rewrite, and the key brings it back."""

from pathlib import Path
from typing import Any

import orjson
import pytest

from components.evaluation.rewriter.blind_sheet import read_scores, write_blind_sheet
from qinglan.errors import DataError
from qinglan.tables.tables import Cells, read_table, write_table
from tests.components.evaluation.rewriter.sample_evaluation import Evaluated

SYSTEMS = ("plain", "history", "teacher", "sft", "rl")
HOSTILE = ["=1+1", "-5度", "+86", "@anna", "'=1", "a\uffffb", "a\x01b", '=HYPERLINK("http://x","y")']


class Sheets:
    """A blind sample in a folder, and people who fill it in."""

    def __init__(self, folder: Path, predictions: Path, count: int = 4, seed: int = 0) -> None:
        self.sheet, self.key, self.predictions = folder / "blind.xlsx", folder / "key.json", predictions
        self.count = write_blind_sheet(predictions, self.sheet, self.key, count, seed)
        self.rows = [cells for _, cells in read_table(self.sheet)]

    def fill(self, score: dict[str, Any]) -> list[Cells]:
        """Each rewrite gets its system's score; equal rewrites get the first system's."""
        key = orjson.loads(self.key.read_bytes())
        for cells in self.rows:
            for letter, names in key[str(cells["编号"])]["letters"].items():
                cells[f"{letter}评分(1-5)"] = score[sorted(names)[0]]
        return self.rows

    def read(self, rows: list[Cells], key: Path | None = None) -> dict[str, Any]:
        filled = self.sheet.with_name("filled.xlsx")
        columns = list(dict.fromkeys(name for cells in rows for name in cells))
        with write_table(filled, columns) as add:
            for cells in rows:
                add([cells.get(name) for name in columns])
        return read_scores(filled, key or self.key, self.predictions, 200)


def test_people_score_blind_and_the_key_brings_the_systems_back(evaluated: Evaluated, tmp_path: Path) -> None:
    sheets = Sheets(tmp_path, evaluated.predictions, count=8)
    assert sheets.count == 8

    assert not any("teacher" in str(value) for cells in sheets.rows for value in cells.values())
    letters = [row["letters"] for row in orjson.loads(sheets.key.read_bytes()).values()]
    assert len({tuple(sorted(row.items(), key=str)[0][1]) for row in letters}) > 1, "the order is shuffled"
    people = sheets.read(sheets.fill({"history": 2, "plain": 1, "rl": "5", "sft": 3, "teacher": "4"}))
    assert people["systems"]["plain"]["value"] < people["systems"]["rl"]["value"], "a score may be text"
    assert people["systems"]["history"]["n"] == 8
    assert people["agreement"]["n"] > 8
    assert people["agreement"]["spearman"] > 0


@pytest.mark.parametrize("value", [6, "好", True, None])
def test_a_score_that_is_none_is_named(evaluated: Evaluated, tmp_path: Path, value: Any) -> None:
    sheets = Sheets(tmp_path, evaluated.predictions, count=1)

    with pytest.raises(DataError, match=rf"评分\(1-5\) is {value!r}|no scores yet"):
        sheets.read(sheets.fill(dict.fromkeys(SYSTEMS, value)))


@pytest.mark.parametrize("text", HOSTILE)
def test_a_formula_is_text_in_the_sheet_and_known_by_its_key(evaluated: Evaluated, tmp_path: Path, text: str) -> None:
    line = orjson.loads(evaluated.predictions.read_bytes().splitlines()[0])
    line["question"] = line["systems"]["rl"]["rewrite"] = text
    predictions = tmp_path / "p.jsonl"
    predictions.write_bytes(orjson.dumps(line))

    sheets = Sheets(tmp_path, predictions, count=1)

    assert not any(str(value).startswith(("=", "+", "-", "@")) for value in sheets.rows[0].values())
    assert sheets.read(sheets.fill(dict.fromkeys(SYSTEMS, 4.0)))["systems"]["rl"]["value"] == 4
