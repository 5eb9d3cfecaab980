"""The steps of `qinglan init`: read, guess, preview; then write the folder, whole or not at all."""

import json
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import islice
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from pydantic import TypeAdapter, ValidationError

from commands.init.chat_messages import Record
from commands.init.documents.documents import Documents, read_documents
from commands.init.fitting import fitted_profile
from commands.init.guess_columns import ColumnGuess, guess_columns, unused_note
from commands.init.profiles import (
    Answers,
    DataSettings,
    Language,
    demo_profile,
    prompt_texts,
    relative_path,
    template,
)
from commands.init.sheet_formats import Records, read_records
from components.data.convert.config import ConvertConfig
from pipelines.lines.config import CONFIGS, TENANTS
from qinglan.config import Name
from qinglan.errors import ConfigError, DataError
from qinglan.files.files import atomic_folder, dump_line
from qinglan.messages import chinese
from qinglan.prompts import Question as PromptQuestion
from qinglan.prompts import student_messages
from qinglan.rows.questions import Columns, read_questions
from qinglan.rows.rows import QuarantinedRow, Question
from qinglan.rows.splits import split_of
from qinglan.terminal import Verbatim, in_language, labelled, visible
from qinglan.text.text import is_chinese

RESERVED = ("training", "style")
"""Names of folders in pipelines/configs that belong to no tenant."""

FIELD_LABELS = ("question", "said before", "user profile", "need", "gold passages", "its split")
"""Names of a row's fields in the preview."""

COLUMNS_SETTING = "`generate.columns`"
PREVIEW_ROWS = 5
QUESTIONS_FILE, KNOWLEDGE_BASE_FILE = "questions.jsonl", "knowledge_base.jsonl"
LEAST_TRAINING, LEAST_TESTED, SEEDS = 0.6, 0.05, 50
"""Least share of a sheet's rows for training, least share for dev and for test, and the number of seeds tried for a
small sheet."""

STUDENT_ROOM = 48
"""Tokens added for the chat template's own marks."""


class TenantData(NamedTuple):
    """Sheet and documents as they were read."""

    sheet: Path
    guess: ColumnGuess
    records: Records
    rows: list[Question | QuarantinedRow]
    """The sheet's rows as the pipeline reads them."""

    documents: Documents | None

    @property
    def questions(self) -> list[Question]:
        return [row for row in self.rows if isinstance(row, Question)]

    @property
    def columns(self) -> dict[str, str]:
        """Column names by field, only where they differ from the usual names."""
        usual = Columns()
        return {name: column for name, column in self.guess.columns.items() if getattr(usual, name) != column}


def tenant_folder(tenant: str) -> Path:
    """Return the folder to write; ConfigError if it exists, or if a tenant may not have this name."""
    try:
        TypeAdapter(Name).validate_python(tenant)
    except ValidationError as error:
        raise ConfigError(
            f"{tenant!r} is no name of a tenant: small letters, digits, - and _, at most 63, such as acme."
        ) from error
    if tenant in RESERVED:
        raise ConfigError(f"{tenant!r} is the name of a folder of settings. Choose another name.")
    if (CONFIGS / tenant).is_dir():
        raise ConfigError(
            f"{tenant!r} is a sample tenant of this project ({CONFIGS / tenant}), which a folder of that name would "
            "hide. Choose another name."
        )
    folder = TENANTS / tenant
    if folder.exists():
        raise ConfigError(f"{folder} is there already, and nothing was changed. Remove it, or choose another name.")
    return folder


def read_data(
    tenant: str,
    sheet: Path,
    document_paths: Sequence[Path],
    named: Mapping[str, str] = MappingProxyType({}),
    sheet_name: str = "",
) -> TenantData:
    """Read the sheet as the pipeline will, and the documents. `named` are the columns that a person gave, by field;
    `sheet_name` selects a sheet of a workbook."""
    records = read_records(sheet, named, sheet_name)
    if not records.rows:
        raise DataError(
            f"{sheet}: no rows below the header, and no message of a user. Is it the right file, and do the "
            "questions stand on its first sheet that is not hidden? --sheet NAME reads another one."
        )
    if records.chats and len({row["conversation_id"] for row in records.rows}) == 1 < len(records.rows):
        raise DataError(
            f"{sheet}: all {len(records.rows):,} questions are of one conversation, which cannot be divided into "
            "train, dev and test. Bring more conversations."
        )
    documents = read_documents(document_paths) if document_paths else None
    if records.note:  # the rows were built from messages, which used up the other columns that a person can name
        named = {"user_profile": named.get("user_profile", "")}
    try:
        guess = guess_columns(records.rows, tenant, named)
    except DataError as error:
        raise DataError(" ".join((str(error), *records.remarks))) from error
    notes = [*records.remarks, *filter(None, [records.note]), *guess.notes]
    elsewhere = [field for field, column in guess.columns.items() if column != field]
    if records.typed and any(field in row for row in records.rows for field in elsewhere):
        records = records._replace(direct=False)  # the pipeline would take such a key for the field itself
    notes += filter(None, [unused_note(guess, records.direct)])
    if not records.direct:
        notes.append(
            f"A run cannot read {sheet.name} as it is: its rows are in {QUESTIONS_FILE}, which is yours to change."
        )
    guess = guess._replace(notes=tuple(notes))
    rows = list(_as_the_pipeline_reads(tenant, sheet, records, guess))
    if not any(isinstance(row, Question) for row in rows):
        first = next(row for row in rows if isinstance(row, QuarantinedRow))
        raise DataError(
            f"{sheet}: none of {len(rows)} rows is a question. The first, {first.where}: {first.detail} "
            "If another column holds the questions, name it: --question-column NAME."
        )
    return TenantData(sheet, guess, records, rows, documents)


def _as_the_pipeline_reads(
    tenant: str, sheet: Path, records: Records, guess: ColumnGuess
) -> list[Question | QuarantinedRow]:
    if records.direct:
        return list(read_questions(sheet, Columns(**guess.columns), tenant))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / QUESTIONS_FILE
        path.write_bytes(questions_jsonl(records.rows, guess))
        return list(read_questions(path, Columns(), tenant))


def questions_jsonl(rows: Sequence[Record], guess: ColumnGuess) -> bytes:
    """Write the rows as JSONL under the pipeline's own field names; cells of other columns are left out."""
    used = {field: column for field, column in guess.columns.items() if column}
    lines = [{field: row[column] for field, column in used.items() if row.get(column) is not None} for row in rows]
    return "".join(f"{json.dumps(line, default=str)}\n" for line in lines).encode()


def preview(data: TenantData) -> list[str]:
    """Show the first rows in lines, each with every field that the pipeline reads."""
    lines = []
    for row in islice(data.rows, PREVIEW_ROWS):
        if isinstance(row, QuarantinedRow):
            lines += [f"{row.where}: set aside", f"  {row.detail}"]
            continue
        values = row.question, row.history_summary, row.user_profile, row.need, ", ".join(row.gold), row.split or ""
        lines.append(f"row {row.id} of conversation {row.conversation_id}")
        named = zip(FIELD_LABELS, values, strict=True)
        lines += [f"  {labelled(in_language(name), Verbatim(_short(value)))}" for name, value in named if value]
    return lines


def _short(text: str, most: int = 70) -> str:
    text = text.replace("\n", " / ")
    return text if len(text) <= most else f"{text[:most]}... ({len(text):,} characters)"


def guess_language(data: TenantData) -> Language:
    """Guess the language of the questions; Chinese if they hold no letters, but only numbers for example."""
    text = "".join(row.question for row in data.questions[:200])
    return "zh" if is_chinese(text) or not any(map(str.isalpha, text)) else "en"


def count_splits(questions: Sequence[Question], seed: int) -> Counter[str]:
    """Count the rows of each split. A conversation has the split that the sheet states, otherwise the one that the
    convert stage draws with this seed."""
    marked = {(row.tenant_id, row.conversation_id): row.split for row in reversed(questions) if row.split}
    names = [(row.tenant_id, row.conversation_id) for row in questions]
    config = ConvertConfig(seed=seed)
    return Counter(marked.get(name) or split_of(name, config) for name in names)


def choose_seed(questions: Sequence[Question]) -> int:
    """Return the usual seed or, if it leaves dev or test too few rows, the best of SEEDS seeds for dev and test."""
    usual = ConvertConfig().seed

    def least(seed: int) -> int:
        rows = count_splits(questions, seed)
        return min(rows["dev"], rows["test"]) if rows["train"] >= LEAST_TRAINING * len(questions) else -1

    if least(usual) >= LEAST_TESTED * len(questions):
        return usual
    # Of seeds that leave equally many rows, max() takes the first: the same sheet always gets the same seed.
    return max(range(usual, usual + SEEDS), key=least)


def write_tenant(
    tenant: str, data: TenantData, answers: Answers, chosen: bool = False
) -> tuple[Path, Answers, list[str]]:
    """Write the tenant's folder, whole or not at all.

    `chosen` is True if a person chose the training; otherwise a smaller one may replace it. Returns the folder, the
    answers that its files follow, and a note on each change.
    """
    folder = tenant_folder(tenant)
    prompts, seed = prompt_texts(answers), choose_seed(data.questions)
    settings = DataSettings(
        questions=relative_path(data.sheet, folder) if data.records.direct else QUESTIONS_FILE,
        knowledge_base=KNOWLEDGE_BASE_FILE if data.documents else "",
        columns=data.columns if data.records.direct else {},
        training_rows=count_splits(data.questions, seed)["train"],
        seed=seed,
        labelled=any(row.gold for row in data.questions),
        longest=longest_prompt(data.questions, prompts["student.txt"]),
    )
    folder.parent.mkdir(parents=True, exist_ok=True)
    with atomic_folder(folder) as partial:
        for name, text in prompts.items():
            (partial / name).write_text(text, encoding="utf-8")
        (partial / "demo.yaml").write_text(demo_profile(tenant, answers, settings), encoding="utf-8")
        if not data.records.direct:
            (partial / QUESTIONS_FILE).write_bytes(questions_jsonl(data.records.rows, data.guess))
        if data.documents:
            (partial / KNOWLEDGE_BASE_FILE).write_bytes(b"".join(map(dump_line, data.documents.passages)))
        paid = fitted_profile(tenant, answers, settings, partial, chosen)
        (partial / f"{answers.teacher}.yaml").write_text(paid.text, encoding="utf-8")
        (partial / "README.md").write_text(readme(tenant, data, paid.answers), encoding="utf-8")
    return folder, paid.answers, paid.notes


def longest_prompt(questions: Sequence[Question], system_prompt: str) -> int:
    """Return an upper bound of the tokens in the student's longest prompt. Each character counts as a token, as in
    the tiny model's tokenizer."""
    lengths = []
    for row in questions:
        prompt_input = PromptQuestion(row.tenant_id, row.question, row.user_profile, row.history_summary)
        lengths.append(sum(len(message["content"]) for message in student_messages(prompt_input, system_prompt)))
    return max(lengths) + STUDENT_ROOM


def readme(tenant: str, data: TenantData, answers: Answers) -> str:
    """Write the folder's README, in the language of the prompts: the files, every guess, and the next steps."""
    words = chinese().translate if answers.language == "zh" else str
    documents = data.documents.files if data.documents else []
    lines = {
        "columns": [f"- `{field}`: {_code(column or '-')}" for field, column in data.guess.columns.items()],
        "notes": [f"- {_plain(words(note))}" for note in data.guess.notes],
        "documents": [
            f"- {_code(str(report.path))}: {_plain(words(line))}"
            for report in documents
            for line in (report.in_words, *report.remarks)
        ]
        + [f"- {_plain(words(note))}" for note in (data.documents.notes if data.documents else ())],
    }
    values = {
        "label": _labelling_step(data, answers), "tenant": tenant,
        "sheet": str(data.sheet).replace("`", "'"), "teacher": answers.teacher,
        "training": answers.training, "gold": data.guess.columns.get("gold") or Columns().gold,
        **{name: "\n".join(items) for name, items in lines.items()},
    }  # fmt: skip
    text = template(f"readme.{answers.language}")
    if not lines["notes"]:
        text = text.replace("{notes}\n\n", "")
    if not documents:
        text = text.replace("{documents}", words("None was named: `--knowledge-base FILE` names it for each run."))
        text = "".join(line for line in text.splitlines(True) if not line.startswith(f"| `{KNOWLEDGE_BASE_FILE}`"))
    for name, value in values.items():
        text = text.replace(f"{{{name}}}", value)
    return text


def _labelling_step(data: TenantData, answers: Answers) -> str:
    """Return the README's step about labels, which depends on whether all questions have gold passages."""
    labelled_rows, rows = sum(bool(row.gold) for row in data.questions), len(data.questions)
    return template(f"labels.{'all' if labelled_rows == rows else 'more'}.{answers.language}").strip()


def _code(text: str) -> str:
    return f"`{visible(text).replace('`', chr(39))}`"


def _plain(text: str) -> str:
    """Escape Markdown in a text from a file, so that it becomes no link or tag. `generate.columns` stays code."""

    def escaped(part: str) -> str:
        return "".join(f"\\{letter}" if letter in "`*_[]<>#|\\" else letter for letter in part)

    return COLUMNS_SETTING.join(map(escaped, visible(text).split(COLUMNS_SETTING)))
