"""The blind sample: nobody sees who wrote what, and the key brings it back."""

from pathlib import Path
from typing import Any

import orjson
import pytest

from components.evaluation.rewriter.blind_sheet import read_scores, write_blind_sheet
from qinglan.errors import DataError
from qinglan.tables.tables import read_table, write_table
from tests.components.evaluation.rewriter.sample_evaluation import Evaluated


def fill(sheet: Path, key: Path, target: Path, score: dict[str, float]) -> Path:
    """As people would: each rewrite gets its system's score; equal rewrites get the first's."""
    kept = orjson.loads(key.read_bytes())
    rows = [cells for _, cells in read_table(sheet)]
    for cells in rows:
        for letter, names in kept[str(cells["编号"])]["letters"].items():
            cells[f"{letter}评分(1-5)"] = score[sorted(names)[0]]
    columns = list(dict.fromkeys(name for cells in rows for name in cells))
    with write_table(target, columns) as add:
        for cells in rows:
            add([cells.get(name) for name in columns])
    return target


def test_people_score_without_knowing_and_the_key_brings_it_back(evaluated: Evaluated, tmp_path: Path) -> None:
    sheet, key = tmp_path / "blind.xlsx", tmp_path / "key.json"
    assert write_blind_sheet(evaluated.predictions, sheet, key, 8, seed=0) == 8

    shown = [cells for _, cells in read_table(sheet)]
    assert not any("teacher" in str(value) for cells in shown for value in cells.values())
    letters = [row["letters"] for row in orjson.loads(key.read_bytes()).values()]
    assert len({tuple(sorted(row.items(), key=str)[0][1]) for row in letters}) > 1, "the order is shuffled"
    score: dict[str, float] = {"history": 2, "plain": 1, "rl": 5, "sft": 3, "teacher": 4}
    people = read_scores(fill(sheet, key, tmp_path / "filled.xlsx", score), key, evaluated.predictions, 200)
    assert people["systems"]["plain"]["value"] < people["systems"]["rl"]["value"]
    assert people["systems"]["history"]["n"] == 8
    assert people["agreement"]["n"] > 8
    assert people["agreement"]["spearman"] > 0


@pytest.mark.parametrize(
    ("value", "said"), [(6, "is 6"), ("好", "is '好'"), (True, "is True"), (None, "no scores yet")]
)
def test_a_score_that_is_none_is_named(evaluated: Evaluated, tmp_path: Path, value: Any, said: str) -> None:
    sheet, key = tmp_path / "blind.xlsx", tmp_path / "key.json"
    write_blind_sheet(evaluated.predictions, sheet, key, 1, seed=0)
    filled = fill(
        sheet, key, tmp_path / "filled.xlsx", dict.fromkeys(("plain", "history", "teacher", "sft", "rl"), value)
    )

    with pytest.raises(DataError, match=said):
        read_scores(filled, key, evaluated.predictions)


def test_another_sheets_key_and_a_row_twice_are_refused(evaluated: Evaluated, tmp_path: Path) -> None:
    sheet, key, other = tmp_path / "blind.xlsx", tmp_path / "key.json", tmp_path / "other.json"
    write_blind_sheet(evaluated.predictions, sheet, key, 4, seed=0)
    write_blind_sheet(evaluated.predictions, tmp_path / "other.xlsx", other, 4, seed=1)
    score = dict.fromkeys(("plain", "history", "teacher", "sft", "rl"), 3.0)
    filled = fill(sheet, key, tmp_path / "filled.xlsx", score)

    with pytest.raises(DataError, match="not those of the key"):
        read_scores(filled, other, evaluated.predictions)
    rows = [cells for _, cells in read_table(filled)]
    with write_table(tmp_path / "twice.xlsx", list(rows[0])) as add:
        for cells in [*rows, rows[0]]:
            add(list(cells.values()))
    with pytest.raises(DataError, match="1 stands there twice"):
        read_scores(tmp_path / "twice.xlsx", key, evaluated.predictions)
    with write_table(tmp_path / "renamed.xlsx", [name.replace("评分", "分") for name in rows[0]]) as add:
        for cells in rows:
            add(list(cells.values()))
    with pytest.raises(DataError, match="no column 'A评分"):
        read_scores(tmp_path / "renamed.xlsx", key, evaluated.predictions)


def test_a_score_that_a_spreadsheet_keeps_as_text_counts(evaluated: Evaluated, tmp_path: Path) -> None:
    sheet, key = tmp_path / "blind.xlsx", tmp_path / "key.json"
    write_blind_sheet(evaluated.predictions, sheet, key, 3, seed=0)
    words: Any = dict.fromkeys(("plain", "history", "teacher", "sft", "rl"), "4")

    people = read_scores(fill(sheet, key, tmp_path / "filled.xlsx", words), key, evaluated.predictions, 50)

    assert people["systems"]["rl"]["value"] == 4


@pytest.mark.parametrize(("key", "said"), [(None, "No such file"), ("[1", "not the key of a blind sample")])
def test_a_key_that_is_none_is_named(evaluated: Evaluated, tmp_path: Path, key: str | None, said: str) -> None:
    sheet = tmp_path / "blind.xlsx"
    write_blind_sheet(evaluated.predictions, sheet, tmp_path / "key.json", 1, seed=0)
    (tmp_path / "key.json").unlink() if key is None else (tmp_path / "key.json").write_text(key)

    with pytest.raises(DataError, match=said):
        read_scores(sheet, tmp_path / "key.json", evaluated.predictions)
    with pytest.raises(DataError, match=r"none\.xlsx"):
        read_scores(tmp_path / "none.xlsx", tmp_path / "key.json", evaluated.predictions)


def test_a_formula_in_a_rewrite_stays_text_in_the_sheet(evaluated: Evaluated, tmp_path: Path) -> None:
    line = orjson.loads(evaluated.predictions.read_bytes().splitlines()[0])
    line["systems"]["rl"]["rewrite"] = '=HYPERLINK("http://x","y")'
    (tmp_path / "p.jsonl").write_bytes(orjson.dumps(line))
    write_blind_sheet(tmp_path / "p.jsonl", tmp_path / "blind.xlsx", tmp_path / "key.json", 5, seed=0)

    [(_, cells)] = read_table(tmp_path / "blind.xlsx")
    assert '\'=HYPERLINK("http://x","y")' in cells.values()


@pytest.mark.parametrize("text", ["=1+1", "-5度", "+86", "@anna", "'=1", "a\uffffb", "a\x01b"])
def test_a_text_that_is_escaped_in_the_sheet_is_known_by_its_key(
    evaluated: Evaluated, tmp_path: Path, text: str
) -> None:
    line = orjson.loads(evaluated.predictions.read_bytes().splitlines()[0])
    line["question"] = line["systems"]["rl"]["rewrite"] = text
    sheet, key, predictions = tmp_path / "blind.xlsx", tmp_path / "key.json", tmp_path / "p.jsonl"
    predictions.write_bytes(orjson.dumps(line))
    write_blind_sheet(predictions, sheet, key, 1, seed=0)
    score = dict.fromkeys(line["systems"], 4.0)

    people = read_scores(fill(sheet, key, tmp_path / "filled.xlsx", score), key, predictions, 50)

    assert people["systems"]["rl"]["value"] == 4


def test_the_predictions_of_another_run_are_refused(evaluated: Evaluated, tmp_path: Path) -> None:
    sheet, key, predictions = tmp_path / "blind.xlsx", tmp_path / "key.json", tmp_path / "p.jsonl"
    write_blind_sheet(evaluated.predictions, sheet, key, 2, seed=0)
    lines = evaluated.predictions.read_bytes().splitlines()
    predictions.write_bytes(
        b"\n".join(orjson.dumps(orjson.loads(line) | {"id": f"other-{at}"}) for at, line in enumerate(lines))
    )
    score = dict.fromkeys(orjson.loads(lines[0])["systems"], 3.0)

    with pytest.raises(DataError, match="is not in the predictions"):
        read_scores(fill(sheet, key, tmp_path / "filled.xlsx", score), key, predictions)
