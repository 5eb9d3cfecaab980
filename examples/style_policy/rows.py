"""Questions to learn from and questions held out, from a folder of labelled answers."""

from pathlib import Path
from typing import NamedTuple

from qinglan.errors import DataError
from qinglan.files.files import sha256_text
from qinglan.style.labels import Labels, format_training_text
from qinglan.style.rows import StyleRow, read_split

ANSWER = format_training_text("", "").partition("\n")[2]
"""The separator between question and answer."""

FEWEST = 16
"""Held-out questions below which no interval is worth its name."""


class Example(NamedTuple):
    """A question in the style model's form, up to where the answer begins, and an answer to it."""

    prompt: str
    answer: str


class Rows(NamedTuple):
    """Rows by use: each part of the training reads only its own."""

    train: list[Example]
    """The responder learns from these rows, and then on their questions."""

    judge: list[StyleRow]
    """Rows of dev, for the independent judge alone."""

    judge_test: list[StyleRow]
    """Rows of test, on which the judge is tried."""

    watched: list[str]
    """Held-out questions that alarms and the choice of a checkpoint look at."""

    final: list[str]
    """Held-out questions that are answered once, for the figures."""

    labels: Labels


def read_rows(folder: Path, held_out: int) -> Rows:
    """Train, judge and held-out parts; a question that was trained on is never held out."""
    train, labels = read_split(folder, "train")
    dev, _ = read_split(folder, "dev")
    test, _ = read_split(folder, "test")
    examples = [example(row, folder / "train.jsonl") for row in train]
    known = {row.prompt for row in examples}
    fresh = {example(row, folder / "test.jsonl").prompt for row in test} - known
    order = sorted(fresh, key=sha256_text)  # by digest: the halves do not depend on the rows' order
    half = len(order) // 2
    if half < FEWEST or not examples or not dev:
        raise DataError(
            f"{folder}: {len(examples)} rows in train, {len(dev)} in dev and {len(order)} questions in test that "
            f"train lacks; the first two must not be empty, and the last be {2 * FEWEST} or more. Prepare more rows."
        )
    return Rows(examples, dev, test, order[:half][:held_out], order[half:][:held_out], labels)


def example(row: StyleRow, path: Path) -> Example:
    """The row cut where its answer begins."""
    prompt, mark, answer = row.input.partition(f"\n{ANSWER}")
    if not mark or not answer.strip():
        raise DataError(f"{path}: row {row.id!r} is not in the form 用户问题：… and 回答：…. Prepare the data again.")
    return Example(prompt + mark, answer)
