"""Check that the locked test did not leak into training, by the content of its questions and by digests on the
models' cards."""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from qinglan.errors import DataError
from qinglan.evaluation.gates.leaks import NamedText, check_leaks
from qinglan.evaluation.question_kinds import is_complete
from qinglan.files.files import sha256_file
from qinglan.rewriter.card import read_card
from qinglan.rows.prompt_parquet import read_prompts
from qinglan.rows.rows import Question
from qinglan.text.near_duplicates import question_key

PARTS = ("train", "dev")
QUESTION, HISTORY = "原始查询: ", "历史摘要: "
ADVICE = "Their scores would flatter the models. Convert again and train on what it writes."


class TrainingQuestion(NamedTuple):
    """A question with its history, as a training prompt contained it."""

    id: str
    question: str
    history: str


def check(test: Iterable[Question], training: Mapping[str, Path], threshold: float) -> dict[str, Any]:
    """Compare every row of training and selection with the test; return the field `leaks` of evaluation.json."""
    rows = [(row, question_key(row.question, row.history_summary)) for row in test]
    complete = {key for row, key in rows if row.need and is_complete(row.question, row.need)}

    def named(folder: Path) -> Iterator[NamedText]:
        for where, row in _read(folder):
            yield f"{where} (row {row.id})", question_key(row.question, row.history)

    parts = {part: named(folder) for part, folder in training.items()}
    return check_leaks([(row.id, key) for row, key in rows], parts, threshold, ADVICE, complete)


def questions(training: Mapping[str, Path]) -> Iterator[str]:
    return (row.question for folder in training.values() for _, row in _read(folder))


def check_parents(
    models: Mapping[str, Path], digests: Mapping[str, str], training: Mapping[str, Path]
) -> dict[str, dict[str, str]]:
    """Return the parents that each model's card names. Raises a DataError if a card names rows that were not compared
    with the test, or if RL was trained from another SFT model."""
    # The comparison by content does not notice that a card names other rows; the comparison of digests does.
    compared = {(path.stem, sha256_file(path)) for folder in training.values() for path in _files(folder)}
    cards = {name: read_card(folder).parents for name, folder in models.items()}
    for name, parents in cards.items():
        for part in PARTS:
            if (part, named := parents.get(part, "")) not in compared:
                raise DataError(
                    f"{name}: its card names {part} rows {named[:12] or '(none)'}, and no file given has that, so "
                    "nobody can tell whether the test leaked. Give the rows it was trained on, or train it again."
                )
        if (before := parents.get("sft_model")) and before != digests["sft"]:
            raise DataError(f"{name} was trained from another SFT model ({before[:12]}) than the one given.")
    return cards


def _files(folder: Path) -> list[Path]:
    """Return the paths of a stage's train and dev rows (.jsonl chats or .parquet prompts); a DataError if missing."""
    ending = "parquet" if (folder / "train.parquet").is_file() else "jsonl"
    paths = [folder / f"{part}.{ending}" for part in PARTS]
    for path in paths:
        if not path.is_file():
            raise DataError(
                f"{path}: not there, so nobody can tell whether the test leaked. Give the stage's whole folder."
            )
    return paths


def _read(folder: Path) -> Iterator[tuple[str, TrainingQuestion]]:
    for path in _files(folder):
        if path.suffix == ".parquet":
            for number, row in enumerate(read_prompts(path), 1):
                extra = row["extra_info"]
                question = TrainingQuestion(extra["id"], extra["question"], extra["history_summary"] or "")
                yield f"{path.name}:{number}", question
            continue
        with path.open("rb") as file:
            for number, line in enumerate(file, 1):
                yield f"{path.name}:{number}", parse_chat_question(line, f"{path}:{number}")


def parse_chat_question(line: bytes, where: str) -> TrainingQuestion:
    try:
        row = orjson.loads(line)
        prompt = next(turn["content"] for turn in row["messages"] if turn["role"] == "user").split("\n")
        question, history = (
            next((line.removeprefix(name) for line in prompt if line.startswith(name)), "")
            for name in (QUESTION, HISTORY)
        )
        name = str(row.get("metadata", {}).get("id", ""))
    except (orjson.JSONDecodeError, KeyError, TypeError, AttributeError, StopIteration) as error:
        raise DataError(f"{where}: no chat with a user turn. Convert again.") from error
    if not question:
        raise DataError(
            f"{where}: its user turn has no line {QUESTION!r}, so nobody can tell whether the test leaked. "
            "Train on what the convert stage writes."
        )
    return TrainingQuestion(name, question, history)
