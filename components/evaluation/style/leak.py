"""Check that the locked test did not leak into training, by the content of its answers and by digests on the model's
card."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from qinglan.errors import DataError
from qinglan.evaluation.gates.leaks import NamedText, check_leaks, joined_leaks
from qinglan.files.files import read_jsonl, sha256_file
from qinglan.style.model import StyleCard
from qinglan.style.rows import UNLABELLED_FILE, StyleRow, UnlabelledText
from qinglan.text.near_duplicates import comparable

ADVICE = "Their answers would flatter the model. Prepare the data again and train on what that writes."


def check(test: Iterable[StyleRow], rows: Path, threshold: float) -> dict[str, Any]:
    """Compare each test row with every row of train and dev and with every unlabelled text; return the field `leaks`
    of evaluation.json.

    Differences in width, case, punctuation and spaces are ignored.
    """
    parts = {part: _named_rows(rows / f"{part}.jsonl") for part in ("train", "dev")}
    if (texts := rows / UNLABELLED_FILE).is_file():
        parts["texts"] = (
            (f"{texts.name}:{number}", comparable(row.text)) for number, row in read_jsonl(texts, UnlabelledText)
        )
    return check_leaks(((row.id, comparable(row.input)) for row in test), parts, threshold, ADVICE)


def _named_rows(path: Path) -> Iterator[NamedText]:
    for number, row in read_jsonl(path, StyleRow):
        yield f"{path.name}:{number} (row {row.id})", comparable(row.input)


def check_folds(
    rows: Sequence[StyleRow],
    folds: Mapping[str, int],
    parts: Mapping[str, Sequence[StyleRow]],
    threshold: float,
) -> dict[str, Any]:
    """Compare the rows of each fold with the rows of all other folds, from which the fold's model learned. Returns
    the field `leaks` of evaluation.json."""
    leaks = []
    for number in sorted(set(folds.values())):
        held_out = [(row.id, comparable(row.input)) for row in rows if folds[row.id] == number]
        rest = {
            part: [(f"row {row.id}", comparable(row.input)) for row in named if folds[row.id] != number]
            for part, named in parts.items()
        }
        leaks.append(check_leaks(held_out, rest, threshold, ADVICE))
    joined = joined_leaks(leaks)
    for part, named in parts.items():
        joined["parts"][part]["rows"] = len(named)
    return joined


def check_parents(card: StyleCard, model: Path, rows: Path) -> None:
    """Raise a DataError if the model's card names train or dev rows that are not the files with which the test was
    compared."""
    for part in ("train", "dev"):
        named, path = card.parents.get(part, ""), rows / f"{part}.jsonl"
        # A card may leave out its dev rows, but it may not name other rows.
        if (named or part == "train") and named != sha256_file(path):
            raise DataError(
                f"{model}: its card names {part} rows {named[:12] or '(none)'}, and {path} is another file, so "
                "nobody can tell whether the test leaked. Evaluate with the rows it was trained on."
            )
