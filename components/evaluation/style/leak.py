"""No answer of the locked test was ever seen in training or selection: by content, and by the card's digests."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from qinglan.errors import DataError
from qinglan.evaluation.gates.leaks import NamedText, check_leaks
from qinglan.files.files import read_jsonl, sha256_file
from qinglan.style.model import StyleCard
from qinglan.style.rows import UNLABELLED_FILE, StyleRow, UnlabelledText
from qinglan.text.near_duplicates import comparable

ADVICE = "Their answers would flatter the model. Prepare the data again and train on what that writes."


def check(test: Iterable[StyleRow], rows: Path, threshold: float) -> dict[str, Any]:
    """evaluation.json's `leaks`: every row of train and dev beside the test, and every text without a label.

    Width, case, punctuation and spaces do not count: a model could not tell such texts apart either.
    """
    parts = {part: _rows(rows / f"{part}.jsonl") for part in ("train", "dev")}
    if (texts := rows / UNLABELLED_FILE).is_file():
        parts["texts"] = _texts(texts)
    return check_leaks(((row.id, comparable(row.input)) for row in test), parts, threshold, ADVICE)


def _rows(path: Path) -> Iterator[NamedText]:
    for number, row in read_jsonl(path, StyleRow):
        yield f"{path.name}:{number} (row {row.id})", comparable(row.input)


def _texts(path: Path) -> Iterator[NamedText]:
    for number, row in read_jsonl(path, UnlabelledText):
        yield f"{path.name}:{number}", comparable(row.text)


def check_folds(rows: Sequence[StyleRow], folds: Mapping[str, int], parts: Mapping[str, Sequence[StyleRow]],
                threshold: float) -> dict[str, Any]:  # fmt: skip
    """Compare each fold of cross-fitted rows with the rows of the others, from which its model learned."""
    sums: dict[str, Any] = {
        part: {"rows": len(named), "same": 0, "alike": 0, "examples": []} for part, named in parts.items()
    }
    for number in sorted(set(folds.values())):
        held_out = [(row.id, comparable(row.input)) for row in rows if folds[row.id] == number]
        rest = {
            part: [(f"row {row.id}", comparable(row.input)) for row in named if folds[row.id] != number]
            for part, named in parts.items()
        }
        for part, overlap in check_leaks(held_out, rest, threshold, ADVICE)["parts"].items():
            sums[part]["alike"] += overlap["alike"]
            sums[part]["examples"] += overlap["examples"]
    return {"threshold": threshold, "parts": sums}


def check_parents(card: StyleCard, model: Path, rows: Path) -> None:
    """The model learned from the very rows that the test was compared with."""
    for part in ("train", "dev"):
        named, path = card.parents.get(part, ""), rows / f"{part}.jsonl"
        # A card need not name what the model was selected on to be measured, but may not name another.
        if (named or part == "train") and named != sha256_file(path):
            raise DataError(
                f"{model}: its card names {part} rows {named[:12] or '(none)'}, and {path} is another file, so "
                "nobody can tell whether the test leaked. Evaluate with the rows it was trained on."
            )
