"""The sheet on which people check the judges' labels.

write_sheet(...)         a sample of labels with need, passage, grade and reason, and an empty column for people
read_corrections(...)    people's grades, by row and passage
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from qinglan.errors import DataError
from qinglan.files.input_paths import path_fault
from qinglan.rows.labels import HIGHEST, RELEVANT, JudgedPassage, RowLabels, best_grade
from qinglan.rows.rows import Question, ValidatedRewrite
from qinglan.tables.sheet_reader import Cell
from qinglan.tables.tables import cell_label, read_table, write_table
from qinglan.text.text import is_blank

ROW, PASSAGE, PERSON = "编号", "段落编号", "人工评分"
COLUMNS = [ROW, "问题", "检索需求", PASSAGE, "段落标题", "段落", "评分", "理由", PERSON]

Corrections = Mapping[str, Mapping[str, int]]
"""People's grades by row id and passage id, both as `cell_label` reads them from a sheet."""


class UnusedCorrections(NamedTuple):
    """Ids in a filled sheet whose grades change nothing."""

    unknown: tuple[str, ...] = ()
    """Ids that no row of this run has."""

    with_gold: tuple[str, ...] = ()
    """Ids of rows with gold passages, which judges do not label."""


def write_sheet(path: Path, rows: Iterable[tuple[Question, RowLabels]]) -> int:
    """Write a line for each judged passage of these rows, and return the number of lines."""
    lines = 0
    with write_table(path, COLUMNS) as add:
        for row, labels in rows:
            for passage in labels.judged:
                by_person = passage.grade if passage.source == "person" else None
                cells = [row.id, row.question, row.need, passage.id, passage.title, passage.content]
                add([*cells, passage.grade, passage.reason, by_person])
                lines += 1
    return lines


def read_corrections(path: Path) -> dict[str, dict[str, int]]:
    if fault := path_fault(path, "label.corrections names the filled label sheet of an earlier run."):
        raise DataError(fault)
    grades: dict[str, dict[str, int]] = defaultdict(dict)
    for number, cells in read_table(path, required=[ROW, PASSAGE, PERSON]):
        if cells[PERSON] in (None, ""):
            continue
        if any(cells[name] is None or is_blank(str(cells[name])) for name in (ROW, PASSAGE)):
            raise DataError(
                f"{path} row {number}: a grade without {ROW} or {PASSAGE}. Copy them from the label sheet."
            )
        row, passage = cell_label(cells[ROW]), cell_label(cells[PASSAGE])
        grade = _grade(path, number, cells[PERSON])
        if grades[row].setdefault(passage, grade) != grade:
            raise DataError(f"{path} row {number}: row {row}, passage {passage} has two grades. Keep one.")
    return dict(grades)


def _grade(path: Path, number: int, value: Cell) -> int:
    try:
        grade = float(str(value).strip())
    except ValueError:
        grade = -1.0
    if grade not in range(HIGHEST + 1):
        raise DataError(f"{path} row {number}: {PERSON} is {value!r}. Write 0, 1, 2 or 3, or leave it empty.")
    return int(grade)


def unused_corrections(path: Path, corrections: Corrections, rows: Iterable[ValidatedRewrite]) -> UnusedCorrections:
    """Return the corrected rows that this run does not label; a DataError if none of them is a row of this run."""
    with_gold = {cell_label(row.id): bool(row.gold) for row in rows if cell_label(row.id) in corrections}
    unknown = tuple(row for row in corrections if row not in with_gold)
    if corrections and len(unknown) == len(corrections):
        raise DataError(
            f"{path}: none of its {len(unknown):,} graded rows is a row of this run; the first is {unknown[0]!r}. "
            "label.corrections names the filled label sheet of an earlier run with the same questions."
        )
    return UnusedCorrections(unknown, tuple(row for row, gold in with_gold.items() if gold))


def corrected(labels: RowLabels, corrections: Corrections) -> RowLabels:
    """Replace the judges' grades by people's grades, and add people's grades of passages that no judge has graded."""
    if not (grades := corrections.get(cell_label(labels.id))):
        return labels
    known = {cell_label(passage.id): passage for passage in labels.judged}
    for passage, grade in grades.items():
        before = known.get(passage, JudgedPassage(id=passage, grade=grade))
        known[passage] = before.model_copy(update={"grade": grade, "source": "person"})
    outcome = "relevant" if best_grade(known.values()) >= RELEVANT else "nothing relevant"
    return labels.model_copy(update={"judged": tuple(known.values()), "outcome": outcome})
