"""Guess from its name which field a column of the sheet holds. Pure functions over records."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from qinglan.errors import DataError
from qinglan.rows.questions import EMPTY_VALUES, SPLIT_NAMES
from qinglan.terminal import visible

NAMES: dict[str, tuple[str, ...]] = {
    "question": (
        "question", "问题", "用户问题", "用户问句", "用户提问", "客户问题", "问句", "提问", "咨询内容", "原始查询",
        "原始问题", "问题内容", "用户输入", "質問", "質問内容", "お問い合わせ内容", "問い合わせ内容", "問題", "질문",
        "query", "userquestion", "userquery", "customerquestion", "utterance", "lastquestion", "questiontext",
        "usermessage", "customermessage", "userinput", "inquiry", "q",
    ),
    "user_profile": ("user_profile", "用户画像", "客户画像", "画像", "用户信息", "profile", "persona", "userinfo"),
    "history_summary": (
        "history_summary", "历史摘要", "对话历史", "历史对话", "聊天记录", "历史记录", "上下文", "上文",
        "历史", "对话记录", "聊天历史", "会话历史", "会话记录", "历史消息", "历史会话", "前文", "之前聊的",
        "之前的对话", "history", "context", "chathistory", "conversationhistory", "dialoguehistory", "previousturns",
        "previousmessages", "messages",
    ),
    "id": ("id", "编号", "问题编号", "序号", "rowid", "questionid", "qid", "no"),
    "conversation_id": (
        "conversation_id", "对话编号", "会话编号", "会话id", "对话id", "会话号", "对话号", "会话标识", "对话标识",
        "会话流水号", "工单号", "工单编号", "工单流水", "sessionid", "sessionno", "session", "dialogid", "dialogueid",
        "chatid", "chatcode", "threadid", "ticketid", "ticketno", "ticketnumber",
    ),
    "need": ("need", "检索需求", "独立问题", "完整问题", "standalonequestion", "standalonequery", "standalone"),
    "gold": (
        "gold", "标准段落", "标准答案段落", "段落编号", "知识编号", "文档编号", "goldids", "goldpassages",
        "passageids", "relevantdocs", "relevantids", "docids", "docid",
    ),
    "split": ("split", "划分", "数据集划分", "subset"),
    "tenant_id": ("tenant_id", "租户", "tenant"),
}  # fmt: skip
"""Usual column names by field, the pipeline's own name first. Case, spaces, underscores and hyphens are ignored."""

CONVERSATION_NAMES = ("conversation", "对话", "会话", "chat", "dialogue")
"""Names that mean a conversation's text in some sheets and its id in others. A column of this name counts as the id
if each cell is one word."""

ID = re.compile(r"[\w.:#-]{1,64}")
ID_WITH_DIGIT = re.compile(r"(?=.*\d)[!-~]+")

OPTIONS = {
    "question": "--question-column", "history_summary": "--history-column", "user_profile": "--profile-column",
    "conversation_id": "--conversation-column",
}  # fmt: skip
"""Options that name a column, by field."""

LEAST_VALUES = 5
"""Least number of values that a column must have for a warning about them."""

SAMPLE = 500
"""Number of first rows whose cells are read for the guesses."""


class ColumnGuess(NamedTuple):
    """Column names by field, as `generate.columns` takes them. An empty name keeps the pipeline from using a column
    that has the field's usual name."""

    columns: dict[str, str]
    notes: tuple[str, ...]
    unused: tuple[str, ...] = ()
    """Columns that are used for no field."""


def guess_columns(
    rows: Sequence[Mapping[str, Any]], tenant: str, named: Mapping[str, str] = MappingProxyType({})
) -> ColumnGuess:
    """Guess every field's column. `named` maps fields to the columns that a person named; an empty name leaves the
    guess in place."""
    names = list(dict.fromkeys(name for row in rows[:SAMPLE] for name in row if name))
    notes: list[str] = []
    columns = {field: name for field in NAMES if (name := _by_name(field, names))}
    _refuse_column_twice(named)
    for field, column in named.items():
        if column:
            columns = {other: name for other, name in columns.items() if name != column} | {field: column}
    free = [name for name in names if name not in columns.values()]
    if "conversation_id" not in columns and (column := conversation_column(rows, free)):
        columns["conversation_id"] = column
        notes.append(
            f"{column} was taken for the conversation's id: it holds ids. --conversation-column names another."
        )
    if "question" not in columns:
        raise DataError(
            f"No column has a usual name for questions; there are {', '.join(map(visible, names)) or 'none'}. "
            "Name it: --question-column NAME. The first row is taken for the names of columns: put a name there if "
            "it has none, such as question. In an exported chat each turn needs a role and a text, such as role and "
            "content."
        )
    if fault := _no_texts(_values(rows, columns, "question")):
        if named.get("question"):
            raise DataError(f"--question-column {visible(named['question'])}: {fault}. Name the column of texts.")
        notes.append(
            f"{columns['question']} is used as question, and {fault}. --question-column names another column."
        )
    if named.get("conversation_id") and (fault := _one_conversation(rows, columns)):
        raise DataError(
            f"--conversation-column {named['conversation_id']}: {fault}. Name another column, or leave the option "
            "out: then each row is a conversation."
        )
    for field, fault in (
        ("id", _repeated(rows, columns)),
        ("conversation_id", _one_conversation(rows, columns)),
        ("split", _unknown_splits(rows, columns)),
        ("tenant_id", _other_tenants(rows, columns, tenant)),
    ):
        if fault:
            notes.append(f"{columns[field]} is not used as {field}: {fault}.")
            columns[field] = ""
    return ColumnGuess(columns, tuple(notes), tuple(name for name in names if name not in columns.values()))


def unused_note(guess: ColumnGuess, direct: bool) -> str:
    """Return a note that names the unused columns and how to use them; empty if all are used. `direct` is True if a
    run reads the sheet itself; otherwise the file that `qinglan init` writes lacks the unused columns."""
    if not guess.unused:
        return ""
    next_step = "`generate.columns` in the profiles can name them."
    if not direct:
        next_step = "Give one a field's usual name, such as user_profile, gold or split, and begin again, to use it."
    alone = " Without conversation_id each row counts as a conversation: --conversation-column names it."
    return f"Not used: {', '.join(guess.unused)}. {next_step}{'' if guess.columns.get('conversation_id') else alone}"


def refuse_missing_columns(path: Path, rows: Sequence[Mapping[str, Any]], named: Mapping[str, str]) -> None:
    names = dict.fromkeys(name for row in rows for name in row if name)
    for field, column in named.items():
        if names and column and column not in names:
            raise DataError(
                f"{path}: no column {column!r}; there are {', '.join(map(visible, names))}. Name one of them: "
                f"{OPTIONS[field]} NAME, or leave the option out: then the column is guessed."
            )


def _refuse_column_twice(named: Mapping[str, str]) -> None:
    """Refuse options that name one column for two fields, because the first field would lose the column."""
    fields: dict[str, str] = {}
    for field, column in named.items():
        if column and fields.setdefault(column, field) != field:
            raise DataError(
                f"Column {column!r} is named for {fields[column]} and for {field}, and can be one of them only. Name "
                "another column, or leave one option out."
            )


def _by_name(field: str, names: Sequence[str]) -> str:
    return next(iter(with_names(NAMES[field], names)), "")


def with_names(usual: Sequence[str], names: Sequence[str]) -> list[str]:
    """Return the columns in `names` that have one of the `usual` names, in the order of `usual`."""
    plain = {plain_name(name): name for name in reversed(names)}
    return [plain[plain_name(name)] for name in usual if plain_name(name) in plain]


def conversation_column(rows: Sequence[Mapping[str, Any]], names: Sequence[str]) -> str:
    """Find the column of conversation ids by its name, or by its cells if the name is ambiguous; else empty."""
    return _by_name("conversation_id", names) or next(
        (name for name in with_names(CONVERSATION_NAMES, names) if _holds_ids(rows[:SAMPLE], name)), ""
    )


def _holds_ids(rows: Sequence[Mapping[str, Any]], name: str) -> bool:
    texts = [str(row[name]).strip() for row in rows if row.get(name)]
    return bool(texts) and all(map(ID.fullmatch, texts))


def plain_name(name: str) -> str:
    """Return a column's name without case, spaces, underscores and hyphens."""
    return re.sub(r"[\s_-]", "", name).lower()


def _no_texts(values: Sequence[str]) -> str:
    if len(values) >= LEAST_VALUES and len(set(values)) == 1:
        return f"all its {len(values):,} values are the same, {visible(values[0][:40])}"
    if len(values) >= LEAST_VALUES and all(map(ID_WITH_DIGIT.fullmatch, values)):
        return f"its {len(values):,} values look like ids, such as {visible(values[0][:40])}"
    return ""


def _one_conversation(rows: Sequence[Mapping[str, Any]], columns: Mapping[str, str]) -> str:
    values = _values(rows, columns, "conversation_id")
    if len(rows) < LEAST_VALUES or len(values) < len(rows) or len(set(values)) > 1:
        return ""
    return (
        f"all {len(rows):,} rows have the same value, {visible(values[0][:40])}, and one conversation cannot be "
        "divided into train, dev and test"
    )


def _values(rows: Sequence[Mapping[str, Any]], columns: Mapping[str, str], field: str) -> list[str]:
    values = (str(row.get(columns.get(field, ""), "") or "").strip() for row in rows)
    return [value for value in values if value.lower() not in EMPTY_VALUES]


def _repeated(rows: Sequence[Mapping[str, Any]], columns: Mapping[str, str]) -> str:
    counts = Counter(_values(rows, columns, "id"))
    value, count = counts.most_common(1)[0] if counts else ("", 0)
    return f"{visible(value[:40])} is there {count} times" if count > 1 else ""


def _unknown_splits(rows: Sequence[Mapping[str, Any]], columns: Mapping[str, str]) -> str:
    unknown = sorted({value for value in _values(rows, columns, "split") if value.lower() not in SPLIT_NAMES})
    return f"{visible(unknown[0][:40])} is none of train, dev and test" if unknown else ""


def _other_tenants(rows: Sequence[Mapping[str, Any]], columns: Mapping[str, str], tenant: str) -> str:
    foreign = sorted(set(_values(rows, columns, "tenant_id")) - {tenant})
    return f"it names {visible(foreign[0][:40])}, and this is {tenant}'s folder" if foreign else ""
