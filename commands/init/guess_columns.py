"""Guess which column is which by its name; a few names need a look at the cells. Pure functions over records."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from qinglan.errors import DataError
from qinglan.rows.chat_history import read_turns
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
"""Names that mean a conversation's text in some sheets and its id in others; the cells decide which."""

HISTORY_OR_OTHER_NAMES = (*CONVERSATION_NAMES, "聊天", "previous", "transcript", "chattranscript", "chatlog")
"""Names that mean the history in some sheets and something else in others; the cells decide which."""

SHORTEST_HISTORY = 10
"""Least average number of characters in a history; ids and labels are shorter."""

LEAST_DIFFERENT = 0.5
"""Least share of different texts in a history, since labels repeat. Guesses about words and digits use the same
share."""

ASCII_WORD = re.compile("[!-~]+")
"""A text without spaces, such as an id, a link or a number, and so no sentence."""

DATE = re.compile(
    r"([\d\s年月日时分秒点号周星期一二三四五六七八九十上下午:：/.,+-]|(?<=\d)T(?=\d)|Z|[ap]m|GMT|UTC"
    r"|\b(jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec|mon|tue|wed|thu|fri|sat|sun)[a-z]*)+",
    re.I,
)
ID = re.compile(r"[\w.:#-]{1,64}")

TEXT_OPTIONS = {
    "question": "--question-column", "history_summary": "--history-column", "user_profile": "--profile-column"
}  # fmt: skip
"""Options that name a column of texts, by field."""

OPTIONS = {**TEXT_OPTIONS, "conversation_id": "--conversation-column"}
"""Options that name a column, by field."""

LEAST_VALUES, NEARLY_ALL = 5, 0.95
"""Least number of values that a column is judged by, and the share of them that counts as all."""

SAMPLE = 500
"""Number of rows, from the first on, from whose cells columns are guessed."""


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
    """Guess every field's column. `named` are the columns that a person gave, by field; some of them may be empty."""
    names = list(dict.fromkeys(name for row in rows[:SAMPLE] for name in row if name))
    notes: list[str] = []
    columns = {field: name for field in NAMES if (name := _by_name(field, names))}
    _refuse_column_twice(named)
    for field, column in named.items():
        if column:
            columns = {other: name for other, name in columns.items() if name != column} | {field: column}
    unsure = with_names(HISTORY_OR_OTHER_NAMES, [name for name in names if name not in columns.values()])
    if "history_summary" not in columns and (history := _history(rows[:SAMPLE], unsure)):
        columns["history_summary"] = history
        notes.append(_history_note(history))
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
    notes += wrong_texts(rows, columns, named)
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
    """A note that names the unused columns and how to use them; empty if all are used. If a run does not read the
    sheet `direct`, the written questions lack these columns."""
    if not guess.unused:
        return ""
    next_step = "`generate.columns` in the profiles can name them."
    if not direct:
        next_step = "Give one a field's usual name, such as user_profile, gold or split, and begin again, to use it."
    alone = " Without conversation_id each row counts as a conversation: --conversation-column names it."
    return f"Not used: {', '.join(guess.unused)}. {next_step}{'' if guess.columns.get('conversation_id') else alone}"


def refuse_missing_columns(path: Path, rows: Sequence[Mapping[str, Any]], named: Mapping[str, str]) -> None:
    """Refuse an option's column that the file's rows do not have."""
    names = dict.fromkeys(name for row in rows for name in row if name)
    for field, column in named.items():
        if names and column and column not in names:
            raise DataError(
                f"{path}: no column {column!r}; there are {', '.join(map(visible, names))}. Name one of them: "
                f"{OPTIONS[field]} NAME, or leave the option out: then the column is guessed."
            )


def _refuse_column_twice(named: Mapping[str, str]) -> None:
    """Refuse options that name one column for two fields: the second field would take the column, and the first
    field's would be guessed."""
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
    """The columns of `names` whose name is one of the `usual` ones, in the order of `usual`."""
    plain = {plain_name(name): name for name in reversed(names)}
    return [plain[plain_name(name)] for name in usual if plain_name(name) in plain]


def _history_note(column: str) -> str:
    return f"{column} was taken for the history by its name and its texts. --history-column names another."


def _history(rows: Sequence[Mapping[str, Any]], names: Sequence[str]) -> str:
    """The first column that holds turns of a chat, or varied sentences, and no ids, labels, dates or links; empty if
    there is none."""
    for name in names:
        values = [row[name] for row in rows if row.get(name)]
        if values and (all(map(read_turns, values)) or _sentences([str(value).strip() for value in values])):
            return name
    return ""


def _sentences(texts: Sequence[str]) -> bool:
    length, different = sum(map(len, texts)) / len(texts), len(set(texts)) / len(texts)
    single_words = sum(bool(ASCII_WORD.fullmatch(text) or DATE.fullmatch(text)) for text in texts)
    return (
        length >= SHORTEST_HISTORY and different >= LEAST_DIFFERENT and single_words <= LEAST_DIFFERENT * len(texts)
    )


def conversation_column(rows: Sequence[Mapping[str, Any]], names: Sequence[str]) -> str:
    """The column of conversation ids among `names`, by its name and, for an ambiguous name, by its cells; empty if
    there is none."""
    return _by_name("conversation_id", names) or _conversation_ids(
        rows[:SAMPLE], with_names(CONVERSATION_NAMES, names)
    )


def _conversation_ids(rows: Sequence[Mapping[str, Any]], names: Sequence[str]) -> str:
    """The first column of ids: each cell is one word, and at least half of them have a digit. Empty if there is
    none."""
    for name in names:
        texts = [str(row[name]).strip() for row in rows if row.get(name)]
        digits = sum(any(map(str.isdigit, text)) for text in texts)
        if texts and all(map(_is_id, texts)) and digits >= LEAST_DIFFERENT * len(texts):
            return name
    return ""


def _is_id(text: str) -> bool:
    return bool(ID.fullmatch(text)) and (text.isdigit() or not DATE.fullmatch(text))


def plain_name(name: str) -> str:
    """A column's name without case, spaces, underscores and hyphens."""
    return re.sub(r"[\s_-]", "", name).lower()


def wrong_texts(rows: Sequence[Mapping[str, Any]], columns: Mapping[str, str], named: Mapping[str, str]) -> list[str]:
    """Warn of text columns that hold ids, or nearly always the same value. If a person named such a column for the
    questions, it is refused instead."""
    warnings = []
    for field, option in TEXT_OPTIONS.items():
        column, values = columns.get(field, ""), _values(rows, columns, field)
        if len(values) < LEAST_VALUES:
            continue
        value, count = Counter(values).most_common(1)[0]
        digits = sum(any(map(str.isdigit, text)) for text in values)
        words = all(map(ASCII_WORD.fullmatch, values)) and digits >= LEAST_DIFFERENT * len(values)
        if count >= NEARLY_ALL * len(values):
            fault = f"{count:,} of its {len(values):,} values are the same, {visible(value[:40])}"
        elif words and (count == 1 or field == "question"):  # repeated labels, such as VIP1, describe users
            fault = f"its {len(values):,} values look like ids, such as {visible(value[:40])}"
        else:
            continue
        if named.get(field) and field == "question":
            raise DataError(f"{option} {visible(column)}: {fault}. Name the column of texts.")
        warnings.append(f"{column} is used as {field}, and {fault}. {option} names another column.")
    return warnings


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
