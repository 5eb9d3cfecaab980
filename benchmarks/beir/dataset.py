"""A retrieval benchmark in BEIR's layout, with the conversations of its queries where it has some.

DIR/
  corpus.jsonl            {"_id", "title", "text"}, a passage a line
  queries.jsonl           {"_id", "text"}
  qrels/test.tsv          query-id, corpus-id, score: a header, then grades from 0
  conversations.jsonl     {"_id", "conversation_id", "turns": [{"role", "content"}], "rewrite"}; may be missing
  rewrites.jsonl          {"_id", "text"}, as MTRAG ships people's rewrites; may be missing

`turns` come before the query; people's rewrite is their own standalone form of it, in either file. MTRAG's tasks are
read as they are: task_id, and input with its speakers, of all its sets in one file.
"""

from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import AliasChoices, BaseModel, ConfigDict, Field

from qinglan.errors import ConfigError, DataError
from qinglan.files.files import atomic_write, dump_line, read_jsonl, sha256_file
from qinglan.files.plain_files import read_plain
from qinglan.rag.contract import Passage
from qinglan.rows.chat_history import chat_lines, read_turns
from qinglan.rows.rows import Question

CORPUS, QUERIES, CONVERSATIONS = "corpus.jsonl", "queries.jsonl", "conversations.jsonl"
REWRITES = "rewrites.jsonl"
QRELS = ("query-id", "corpus-id", "score")
SPOKEN = "|user|:"
"""Prefix of MTRAG's queries."""

LONGEST_HISTORY = 20_000

Grades = dict[str, int]


class Dataset(NamedTuple):
    """The judged queries of one split, with the grades of their passages."""

    name: str
    split: str
    rows: list[Question]
    """`need` is people's rewrite, where the benchmark has one."""

    grades: list[Grades]
    """Grades by passage, for each row."""

    passages: int
    blank: int
    """Passages without any text, which nothing can find."""

    unjudged: int
    """Queries that this split does not judge; they are not measured."""

    no_conversation: int
    """Rows without a line in conversations.jsonl, where there is such a file: they have no history."""

    digests: dict[str, str]

    @property
    def has_history(self) -> bool:
        return any(row.history_summary for row in self.rows)

    @property
    def has_needs(self) -> bool:
        return any(row.need for row in self.rows)


class _Line(BaseModel):
    """A line of a foreign file: fields other than those below are ignored."""

    model_config = ConfigDict(frozen=True, extra="ignore", coerce_numbers_to_str=True)


class CorpusLine(_Line):
    id: str = Field(min_length=1, alias="_id")
    title: str = ""
    text: str


class QueryLine(_Line):
    id: str = Field(min_length=1, alias="_id")
    text: str = Field(pattern=r"\S")


class ConversationLine(_Line):
    id: str = Field(min_length=1, validation_alias=AliasChoices("_id", "task_id"))
    conversation_id: str = Field(min_length=1)
    turns: list[Any] = Field(default=[], validation_alias=AliasChoices("turns", "input"))
    rewrite: str = ""


def read_dataset(folder: Path, split: str, tenant: str, knowledge_base: Path) -> Dataset:
    """Read and check the benchmark; its passages become a knowledge base, written to this path."""
    files = {name: folder / name for name in (CORPUS, QUERIES)} | {"qrels": qrels_file(folder, split)}
    for path in files.values():
        if not path.is_file():
            raise ConfigError(
                f"{path}: no such file. A benchmark in BEIR's layout has {CORPUS}, {QUERIES} and qrels."
            )
    texts = {line.id: line for _, line in _unique(files[QUERIES], QueryLine)}
    judged, lines = read_qrels(files["qrels"])
    first_lines = {query: min(numbers.values()) for query, numbers in lines.items()}
    _refuse_unknown(files["qrels"], "query-id", first_lines, texts, QUERIES)
    passages, blank = write_knowledge_base(files[CORPUS], knowledge_base)
    for query, numbers in lines.items():
        _refuse_unknown(files["qrels"], f"corpus-id of query {query}", numbers, passages, CORPUS)
    conversations = _conversations(folder / CONVERSATIONS, texts)
    rewrites = {name: line.text for name, (_, line) in _lines_of(texts, folder / REWRITES, QueryLine).items()}
    if conversations:
        files[CONVERSATIONS] = folder / CONVERSATIONS
    if rewrites:
        files[REWRITES] = folder / REWRITES
    rows = [
        _row(query, conversations.get(name), rewrites.get(name, ""), tenant)
        for name, query in texts.items()
        if name in judged
    ]
    return Dataset(
        folder.resolve().name, split, rows, [judged[row.id] for row in rows], len(passages), blank,
        len(texts) - len(rows), sum(row.id not in conversations for row in rows) if conversations else 0,
        {name: sha256_file(path) for name, path in files.items()},
    )  # fmt: skip


def qrels_file(folder: Path, split: str) -> Path:
    path = folder / "qrels" / f"{split}.tsv"
    if not path.is_file():
        known = ", ".join(sorted(file.stem for file in (folder / "qrels").glob("*.tsv")))
        raise ConfigError(
            f"{path}: no such file. Splits with judgements: {known or 'none'}. Choose one with --split."
        )
    return path


class Judgements(NamedTuple):
    grades: dict[str, Grades]
    """Grades by query and passage."""

    lines: dict[str, dict[str, int]]
    """The line of each grade in its file."""


def read_qrels(path: Path) -> Judgements:
    """Read grades and their lines; a wrong header, a grade that is no whole number or a duplicate is a DataError."""
    judged, lines = Judgements({}, {})
    for number, cells in enumerate(_lines(path), 1):
        where = f"{path}:{number}"
        if number == 1:
            if tuple(cells) != QRELS:
                raise DataError(f"{where}: no header. The first line is {', '.join(QRELS)}, with tabs between.")
            continue
        if len(cells) != len(QRELS):
            raise DataError(f"{where}: {len(cells)} columns. A line is {', '.join(QRELS)}, with tabs between.")
        query, passage, text = cells
        grade = _grade(text, where)
        if judged.setdefault(query, {}).setdefault(passage, grade) != grade:
            raise DataError(f"{where}: passage {passage!r} has another grade for query {query!r} above. Keep one.")
        lines.setdefault(query, {}).setdefault(passage, number)
    if not judged:
        raise DataError(f"{path}: judges nothing. Give at least one line below the header.")
    return Judgements(judged, lines)


def _lines(path: Path) -> Iterator[list[str]]:
    try:
        text = read_plain(path).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: byte {error.start} is not UTF-8. Save the file as UTF-8 and try again.") from error
    for line in text.split("\n"):
        if line.strip():
            yield line.rstrip("\r").split("\t")


def _grade(text: str, where: str) -> int:
    try:
        return int(text)
    except ValueError as error:
        raise DataError(f"{where}: score {text!r} is no grade. Give a whole number, 0 for irrelevant.") from error


def write_knowledge_base(corpus: Path, target: Path) -> tuple[set[str], int]:
    """Write the passages as the RAG service takes them; all ids, and how many passages have no text at all."""
    ids: set[str] = set()
    blank = 0
    with atomic_write(target) as partial, partial.open("wb") as file:
        for _, line in _unique(corpus, CorpusLine):
            ids.add(line.id)
            title, content = (line.title, line.text) if line.text.strip() else ("", line.title)
            if content.strip():
                file.write(dump_line(Passage(id=line.id, title=title, content=content)))
            else:
                blank += 1
    if len(ids) == blank:
        raise DataError(f"{corpus}: holds no passage with a text.")
    return ids, blank


def _unique(path: Path, model: type[Any]) -> Iterator[tuple[int, Any]]:
    """Lines with their numbers; the second line of an id is a DataError."""
    first: dict[str, int] = {}
    for number, line in read_jsonl(path, model):
        if line.id in first:
            raise DataError(f"{path}:{number}: _id {line.id!r} is line {first[line.id]}'s already. Keep one of them.")
        first[line.id] = number
        yield number, line


def _refuse_unknown(path: Path, column: str, lines: Mapping[str, int], known: Collection[str], file: str) -> None:
    """Refuse ids that the file does not hold; `lines` has the line of each id."""
    unknown = sorted((number, name) for name, number in lines.items() if name not in known)
    if unknown:
        (number, name), rest = unknown[0], len(unknown) - 1
        more = f", nor are {rest:,} more" if rest else ""
        raise DataError(
            f"{path}:{number}: {column} {name!r} is not in {file}{more}. Take corpus, queries and qrels of one "
            "release of the benchmark."
        )


def _conversations(path: Path, texts: Collection[str]) -> dict[str, ConversationLine]:
    lines = _lines_of(texts, path, ConversationLine).items()
    return {
        name: line.model_copy(update={"turns": _turns(f"{path}:{number}", line)}) for name, (number, line) in lines
    }


def _lines_of(queries: Collection[str], path: Path, model: type[Any]) -> dict[str, tuple[int, Any]]:
    """Lines of these queries, with their numbers; none where there is no file.

    Lines of other queries are left alone: MTRAG ships the conversations of all its sets in one file, with turns that
    nobody judged.
    """
    if not path.exists():
        return {}
    lines = {line.id: (number, line) for number, line in _unique(path, model) if line.id in queries}
    if not lines:
        raise DataError(f"{path}: no line is of a query in {QUERIES}. Take both files of one release.")
    return lines


def _turns(where: str, line: ConversationLine) -> list[Any]:
    turns = read_turns(line.turns) if line.turns else []
    if turns is None:
        raise DataError(
            f"{where}: turns of {line.id!r} cannot be read. A turn is {{role, content}} or {{speaker, text}}."
        )
    return turns


def _row(query: QueryLine, conversation: ConversationLine | None, rewrite: str, tenant: str) -> Question:
    """A query as a row for our systems; without a conversation it forms one by itself."""
    question = _spoken(query.text)
    turns = list(conversation.turns) if conversation else []
    if turns and turns[-1].side == "user" and turns[-1].text == question:
        turns.pop()  # MTRAG's tasks end with the query itself
    return Question(
        id=query.id, tenant_id=tenant, conversation_id=conversation.conversation_id if conversation else query.id,
        question=question, history_summary=chat_lines(turns)[-LONGEST_HISTORY:],
        need=_spoken(rewrite or (conversation.rewrite if conversation else "")),
    )  # fmt: skip


def _spoken(text: str) -> str:
    return text.strip().removeprefix(SPOKEN).strip()
