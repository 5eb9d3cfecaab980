"""No question of the locked test was ever seen in training or selection: checked by content, not by file name."""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from qinglan.errors import DataError
from qinglan.files import sha256_file, sha256_text
from qinglan.rewriter import read_card
from qinglan.rows import Question
from qinglan.text import normalise, one_line

SHOWN = 5
PARTS = ("train", "dev")
QUESTION, HISTORY = "原始查询: ", "历史摘要: "


class Asked(NamedTuple):
    """What a model saw of a question."""

    id: str
    question: str
    history: str

    @property
    def digest(self) -> str:
        """Of the row: its id and every character of what was asked."""
        return sha256_text(self.id, one_line(self.question), one_line(self.history))

    @property
    def text(self) -> str:
        """What a model cannot tell apart: width, case, punctuation and spaces do not count."""
        return f"{normalise(self.question)}|{normalise(self.history)}"


def check(test: Iterable[Question], training: Mapping[str, Path]) -> int:
    """Read every training and selection row beside the test, and count them. A DataError names what leaked."""
    digests, texts = {}, {}
    for row in test:
        asked = Asked(row.id, row.question, row.history_summary)
        digests[asked.digest] = texts[asked.text] = row.id
    seen, leaked = 0, []
    for folder in training.values():
        for where, asked in _read(folder):
            seen += 1
            if (known := digests.get(asked.digest) or texts.get(asked.text)) is not None:
                leaked.append(f"test row {known} is {where} (row {asked.id})")
    if leaked:
        more = f" and {len(leaked) - SHOWN} more" if len(leaked) > SHOWN else ""
        raise DataError(
            f"{len(leaked)} rows of the locked test were trained or selected on: {'; '.join(leaked[:SHOWN])}{more}. "
            "Their scores would flatter the models. Convert again and train on what it writes."
        )
    return seen


def check_parents(models: Mapping[str, Path], digests: Mapping[str, str], training: Mapping[str, Path]) -> None:
    """Each model learned from the very files that were compared with the test, and RL from this SFT model."""
    given = {(path.stem, sha256_file(path)) for folder in training.values() for path in _files(folder)}
    for name, folder in models.items():
        parents = read_card(folder).parents
        for part in PARTS:
            if (part, seen := parents.get(part, "")) not in given:
                raise DataError(
                    f"{name}: its card names {part} rows {seen[:12] or '(none)'}, and no file given has that, so "
                    "nobody can tell whether the test leaked. Give the rows it was trained on, or train it again."
                )
        if (before := parents.get("sft_model")) and before != digests["sft"]:
            raise DataError(f"{name} was trained from another SFT model ({before[:12]}) than the one given.")


def _files(folder: Path) -> list[Path]:
    """The train and dev rows of a stage's folder: chats (.jsonl) or prompts (.parquet)."""
    ending = "parquet" if (folder / "train.parquet").is_file() else "jsonl"
    paths = [folder / f"{part}.{ending}" for part in PARTS]
    for path in paths:
        if not path.is_file():
            raise DataError(
                f"{path}: not there, so nobody can tell whether the test leaked. Give the stage's whole folder."
            )
    return paths


def _read(folder: Path) -> Iterator[tuple[str, Asked]]:
    for path in _files(folder):
        yield from _read_prompts(path) if path.suffix == ".parquet" else _read_chats(path)


def _read_chats(path: Path) -> Iterator[tuple[str, Asked]]:
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            yield f"{path.name}:{number}", asked_of_chat(line, f"{path}:{number}")


def asked_of_chat(line: bytes, where: str) -> Asked:
    """The question and history of a chat row, read back from its prompt."""
    try:
        row = orjson.loads(line)
        prompt = next(said["content"] for said in row["messages"] if said["role"] == "user")
        fields = {name: _field(prompt, name) for name in (QUESTION, HISTORY)}
        name = str(row.get("metadata", {}).get("id", ""))
    except (orjson.JSONDecodeError, KeyError, TypeError, AttributeError, StopIteration):
        raise DataError(f"{where}: no chat with a user turn. Convert again.") from None
    if not fields[QUESTION]:
        raise DataError(
            f"{where}: its user turn has no line {QUESTION!r}, so nobody can tell whether the test leaked. "
            "Train on what the convert stage writes."
        )
    return Asked(name, fields[QUESTION], fields[HISTORY])


def _field(prompt: str, name: str) -> str:
    return next((line.removeprefix(name) for line in prompt.split("\n") if line.startswith(name)), "")


def _read_prompts(path: Path) -> Iterator[tuple[str, Asked]]:
    for number, extra in enumerate(_extra_infos(path), 1):
        try:
            asked = Asked(str(extra["id"]), extra["question"], extra["history_summary"] or "")
        except (KeyError, TypeError):
            raise DataError(
                f"{path}, row {number}: extra_info has no id, question and history. Convert again."
            ) from None
        yield f"{path.name}:{number}", asked


def _extra_infos(path: Path) -> Iterator[Any]:
    import pyarrow as pa
    import pyarrow.parquet

    try:
        with pyarrow.parquet.ParquetFile(path) as file:
            for batch in file.iter_batches(columns=["extra_info"]):
                yield from batch.column(0).to_pylist()
    except (pa.ArrowException, OSError, IndexError) as error:
        raise DataError(f"{path}: cannot be read as parquet ({error}). Convert again.") from None
