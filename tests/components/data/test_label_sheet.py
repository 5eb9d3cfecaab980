"""The label sheet out and in again: no grade that a person fills in is lost, whatever the ids look like."""

from pathlib import Path

import openpyxl
import pytest

from components.data.label.config import LabelConfig
from components.data.label.sheet import corrected, read_corrections, unused_corrections, write_sheet
from components.data.label.tally import Tally
from qinglan.errors import DataError
from qinglan.rows.labels import JudgedPassage, RowLabels
from qinglan.rows.rows import ValidatedRewrite
from tests.models.validated_rows import validated


def filled(path: Path, row: ValidatedRewrite, passage: str) -> Path:
    """The sheet of one judged passage, as a person saves it with the grade 3."""
    judged = (JudgedPassage(id=passage, grade=0, grades=(0,)),)
    labels = RowLabels(id=row.id, tenant_id=row.tenant_id, outcome="nothing relevant", calls=1, judged=judged)
    assert write_sheet(path, [(row, labels)]) == 1
    book = openpyxl.load_workbook(path)
    sheet = book.worksheets[0]
    sheet.cell(2, [cell.value for cell in sheet[1]].index("人工评分") + 1, 3)
    book.save(path)
    return path


@pytest.mark.parametrize(
    "label",
    ["-1001", "=1", "+86", "@anna", "=cmd|' /C calc'!A0", "'-1", "1001", "007", "1.0", "a\uffffb", "a\x01b",
     "\tx", "a\r\nb", "-", "’-1"],
)  # fmt: skip
def test_a_grade_reaches_its_row_and_passage_whatever_they_are_called(tmp_path: Path, label: str) -> None:
    row = validated(id=label, gold=())

    corrections = read_corrections(filled(tmp_path / "filled.xlsx", row, label))

    before = JudgedPassage(id=label, grade=0, grades=(0,))
    labels = RowLabels(id=label, tenant_id=row.tenant_id, outcome="nothing relevant", calls=1, judged=(before,))
    after = corrected(labels, corrections)
    assert [(passage.id, passage.grade, passage.source) for passage in after.judged] == [(label, 3, "person")]
    assert after.outcome == "relevant"
    assert unused_corrections(tmp_path / "filled.xlsx", corrections, [row]) == ((), ())


def test_a_sheet_of_another_run_is_refused_before_anybody_is_paid(tmp_path: Path) -> None:
    corrections = read_corrections(filled(tmp_path / "filled.xlsx", validated(id="-1"), "p1"))

    with pytest.raises(DataError, match=r"none of its 1 graded rows is a row of this run; the first is '-1'"):
        unused_corrections(tmp_path / "filled.xlsx", corrections, [validated(id="-2")])


def test_grades_that_change_nothing_are_counted_and_named(tmp_path: Path) -> None:
    rows = [validated(id="a", gold=()), validated(id="b", gold=("p",))]
    corrections = {"a": {"p1": 3}, "b": {"p1": 3}, "c": {"p1": 3}}

    unused = unused_corrections(tmp_path / "filled.xlsx", corrections, rows)
    tally = Tally(LabelConfig())
    labels = RowLabels(id="a", tenant_id="t", outcome="nothing relevant", calls=0, judged=())
    tally.add(rows[0], corrected(labels, corrections))

    assert unused == (("c",), ("b",))
    assert tally.report()["graded_by_people_only"] == ["p1 of a"]
