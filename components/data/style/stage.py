"""Divide labelled answers into splits for training and evaluation, and show their distribution."""

from collections import Counter
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import NamedTuple

from components.data.style.config import PrepareStyleConfig
from components.data.style.parse_answers import read_rows
from components.data.style.split_rows import contradictions, fold_rows, split_rows
from qinglan.errors import DataError
from qinglan.files.files import atomic_folder, atomic_write, dump_line, read_jsonl
from qinglan.style.labels import Labels, write_mapping
from qinglan.style.rows import SPLITS, UNLABELLED_FILE, Split, StyleRow, UnlabelledText, write_folds
from qinglan.text.near_duplicates import NearDuplicateIndex, comparable

LABELLED = ("style.json", "style.jsonl", "style.xlsx")
UNLABELLED = "unlabelled.jsonl"
STYLE = "body{font:15px system-ui,sans-serif}td{padding:.35rem 1.2rem .35rem 0;border-bottom:1px solid #e3e7ec}"


class PreparedCounts(NamedTuple):
    rows: int
    train: int
    dev: int
    test: int
    labels: int
    smallest_label: int
    """Number of rows of the label that has the fewest."""

    contradicting: int
    """Number of rows that have the words of another row but not its label."""

    unlabelled: int


FIGURES = {
    "rows": "labelled answers",
    "train": "train, rows",
    "dev": "dev, rows",
    "test": "locked test, rows",
    "labels": "labels",
    "smallest_label": "label with the fewest, rows",
    "contradicting": "same words and another label, rows",
    "unlabelled": "texts without a label",
}
"""Words for the figures on KFP's page, by field."""


def prepare(data: Path, out: Path, page: Path, config: PrepareStyleConfig) -> PreparedCounts:
    """Write the splits and the page; `data` is a file, or a folder that also holds unlabelled texts."""
    labelled, unlabelled = find_inputs(data)
    labels = Labels(labels=config.labels)
    rows = read_rows(labelled, config.columns, labels)
    splits = split_rows(rows, config)
    folds = fold_rows(rows, config) if splits.count("test") < config.cross_fit_below else {}
    if folds:
        splits = ["train" if split == "test" else split for split in splits]
    with atomic_folder(out) as folder:
        write_mapping(folder, labels)
        if folds:
            write_folds(folder, folds)
        for split in SPLITS:
            lines = (dump_line(row) for row, its in zip(rows, splits, strict=True) if its == split)
            (folder / f"{split}.jsonl").write_bytes(b"".join(lines))
        # Texts that no training may use: those outside of train, or all of them if there are folds.
        held_out = [row.input for row, split in zip(rows, splits, strict=True) if folds or split != "train"]
        texts = _write_texts(unlabelled, folder / UNLABELLED_FILE, held_out, config.alike) if unlabelled else 0
    with atomic_write(page) as partial:
        partial.write_text(distribution(rows, splits, labels), encoding="utf-8")
    return PreparedCounts(
        rows=len(rows),
        **{split: splits.count(split) for split in SPLITS},
        labels=len(labels.labels),
        smallest_label=min(Counter(row.label for row in rows).values()),
        contradicting=len(contradictions(rows)),
        unlabelled=texts,
    )


def find_inputs(data: Path) -> tuple[Path, Path | None]:
    if not data.is_dir():
        return data, None
    labelled = [data / name for name in LABELLED if (data / name).is_file()]
    if not labelled:
        raise DataError(f"{data}: holds none of {', '.join(LABELLED)}. Name the labelled answers, or put them there.")
    unlabelled = data / UNLABELLED
    return labelled[0], unlabelled if unlabelled.is_file() else None


def _write_texts(source: Path, target: Path, held_out: Sequence[str], threshold: float) -> int:
    """Copy the unlabelled texts, except held-out texts and their near-duplicates. Returns the number of copies."""
    held, count = NearDuplicateIndex(map(comparable, held_out), threshold), 0
    with target.open("wb") as file:
        for _, text in read_jsonl(source, UnlabelledText):
            if not held.alike(comparable(text.text)):
                file.write(dump_line(text))
                count += 1
    return count


def distribution(rows: Sequence[StyleRow], splits: Sequence[Split], labels: Labels) -> str:
    """Return an HTML page with the number of rows by label and split."""
    counts = Counter((row.label, split) for row, split in zip(rows, splits, strict=True))
    table: list[list[object]] = [["label", "rows", *SPLITS, "means"]]
    for label in labels.labels:
        of_splits = [counts[label.name, split] for split in SPLITS]
        table.append([label.name, sum(of_splits), *of_splits, label.description])
    lines = ("".join(f"<td>{escape(str(cell))}</td>" for cell in line) for line in table)
    return (
        f'<!doctype html><meta charset="utf-8"><title>Labels</title><style>{STYLE}</style>'
        f"<h3>{len(rows):,} labelled answers</h3><table>{''.join(f'<tr>{line}</tr>' for line in lines)}</table>"
    )
