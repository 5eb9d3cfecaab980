"""Guesses which column is which, by its name and then by what it holds. Pure functions over records."""

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
        "conversation_id", "对话编号", "会话编号", "会话id", "对话id", "sessionid", "session", "dialogid",
        "dialogueid", "chatid", "threadid",
    ),
    "need": ("need", "检索需求", "独立问题", "完整问题", "standalonequestion", "standalonequery", "standalone"),
    "gold": (
        "gold", "标准段落", "标准答案段落", "段落编号", "知识编号", "文档编号", "goldids", "goldpassages",
        "passageids", "relevantdocs", "relevantids", "docids", "docid",
    ),
    "split": ("split", "划分", "数据集划分", "subset"),
    "tenant_id": ("tenant_id", "租户", "tenant"),
}  # fmt: skip
"""Usual names by field, the pipeline's own first; case, spaces, underscores and hyphens do not count."""

QUESTION_WORDS = re.compile(
    r"[?？]|吗|呢|什么|怎么|如何|多少|几|哪|\b(how|what|which|when|where|can|does|do|is|why)\b", re.I
)
SENTENCE = re.compile(r"[?？]|[。！!]$|[^\W\d_a-z]{20}|^.{60}|^(?:\S+\s+){7}\S", re.I)
"""The signs that a text is a user's words and no name of a column."""

LONG_NAME = re.compile(r"[^\W\d_a-z]{5}|^(?:\S+\s+){3}\S", re.I)
"""Five Chinese characters or four words: with a word that asks, they are a question, too."""

CONVERSATION_NAMES = ("conversation", "对话", "会话", "chat", "dialogue")
"""Names of a conversation's texts in some sheets and of its ids in others: what they hold decides."""

HISTORY_OR_OTHER_NAMES = (
    *CONVERSATION_NAMES,
    "聊天",
    "previous",
    "transcript",
    "chattranscript",
    "chatlog",
)
"""Names of what was said before, or of something else about it."""

HISTORY_PARTS = re.compile("历史|上文|前文|之前|聊天|对话|history|previous|context|chat|conversation", re.I)
"""Parts of other names for what was said before; columns of ids and dates have them, too, so its texts count."""

CONVERSATION_PARTS = re.compile(
    "(会话|对话|通话|工单|session|conversation|dialog|chat|ticket|thread).*(号|编码|标识|流水|id|no|number|code|key)$"
)
"""Other names of a conversation's ids, in their plain form; what they hold counts, too."""

SHORTEST_HISTORY = 10
"""Characters of a text that is no id and no label, on average."""

LEAST_DIFFERENT = 0.5
"""Share of different texts in a history; labels repeat."""

ASCII_WORD = re.compile("[!-~]+")
"""An id, a link, a number: no sentence."""

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
"""Values from which on a column's kind shows, and the share of them that is as good as all."""

SAMPLE = 500
LONGEST_QUESTION = 300


class ColumnGuess(NamedTuple):
    """Column names by field, as `generate.columns` takes them: an empty one keeps a column from being used."""

    columns: dict[str, str]
    notes: tuple[str, ...]
    unused: tuple[str, ...] = ()
    """Columns that are no field's."""


def guess_columns(
    rows: Sequence[Mapping[str, Any]], tenant: str, named: Mapping[str, str] = MappingProxyType({})
) -> ColumnGuess:
    """Guess every field's column; `named` are the columns that a person gave, by field, some of them empty."""
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
        if not columns:
            _refuse_question_as_name(names)
        free = [name for name in names if name not in (*columns.values(), *unsure)]
        columns["question"] = _by_content(rows[:SAMPLE], free)
        notes.append(f"No column has a usual name for questions: {columns['question']} was taken for what it holds.")
    named_so = [name for name in names if name not in columns.values() and HISTORY_PARTS.search(name)]
    if "history_summary" not in columns and (history := _history(rows[:SAMPLE], named_so)):
        columns["history_summary"] = history
        notes.append(_history_note(history))
    notes += [*wrong_texts(rows, columns, named), *_wordless_questions(rows, columns)]
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
    """Name the columns that are not used, and the way to use them: rows that were put together have no others."""
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
    """Refuse one column for two fields: the second would take it from the first, which would then be guessed."""
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
    """The columns with these names, in the order of the usual ones."""
    plain = {plain_name(name): name for name in reversed(names)}
    return [plain[plain_name(name)] for name in usual if plain_name(name) in plain]


def _history_note(column: str) -> str:
    return f"{column} was taken for the history by its name and its texts. --history-column names another."


def _history(rows: Sequence[Mapping[str, Any]], names: Sequence[str]) -> str:
    """The first column with turns or different sentences; ids, labels, dates and links are none. Empty for none."""
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
    """The column of conversations' ids among these, by its name and what it holds; empty for none."""
    unsure = (name for name in names if CONVERSATION_PARTS.match(plain_name(name)))
    ids = _conversation_ids(rows[:SAMPLE], [*with_names(CONVERSATION_NAMES, names), *unsure])
    return _by_name("conversation_id", names) or ids


def _conversation_ids(rows: Sequence[Mapping[str, Any]], names: Sequence[str]) -> str:
    """The first column of ids: a word without spaces in each row, with a digit in most. Empty for none."""
    for name in names:
        texts = [str(row[name]).strip() for row in rows if row.get(name)]
        digits = sum(any(map(str.isdigit, text)) for text in texts)
        if texts and all(map(_is_id, texts)) and digits >= 0.5 * len(texts):
            return name
    return ""


def _is_id(text: str) -> bool:
    return bool(ID.fullmatch(text)) and (text.isdigit() or not DATE.fullmatch(text))


def plain_name(name: str) -> str:
    """A column's name without case, spaces, underscores and hyphens."""
    return re.sub(r"[\s_-]", "", name).lower()


def _by_content(rows: Sequence[Mapping[str, Any]], names: Sequence[str]) -> str:
    """The column of short, varied texts that ask something."""
    scores = {name: _question_score([row.get(name) for row in rows]) for name in names}
    best = max(scores, key=lambda name: scores[name], default="")
    if not best or scores[best] <= 0:
        raise DataError(
            f"No column looks like users' questions; there are {', '.join(map(visible, names)) or 'none'}. "
            "Name it: --question-column NAME. The first row is taken for the names of columns: delete what stands "
            "above them. In an exported chat each turn needs a role and a text, such as role and content."
        )
    return best


def _refuse_question_as_name(names: Sequence[str]) -> None:
    """Refuse names of columns of which none is usual and one reads like a user's words: it would be lost."""
    if text := next(filter(_is_sentence, names), ""):
        raise DataError(
            f"The first row is taken for the names of columns, and {visible(text[:60])!r} reads like a question. "
            "Put a row of names above it, such as question. If it is a name: --question-column NAME."
        )


def _is_sentence(name: str) -> bool:
    return bool(SENTENCE.search(name) or (LONG_NAME.search(name) and QUESTION_WORDS.search(name)))


def _wordless_questions(rows: Sequence[Mapping[str, Any]], columns: Mapping[str, str]) -> list[str]:
    values = _values(rows, columns, "question")
    wordless = [text for text in values if DATE.fullmatch(text) or not any(map(str.isalpha, text))]
    if not wordless or len(wordless) == len(values) >= LEAST_VALUES:  # wrong_texts warns of a whole column
        return []
    return [
        f"{len(wordless):,} of {len(values):,} questions are a date, a number or signs, such as "
        f"{visible(wordless[0][:40])}. Take out those that no user asked."
    ]


def _question_score(values: Sequence[Any]) -> float:
    texts = [value for value in values if isinstance(value, str) and value.strip() and not read_turns(value)]
    if len(texts) < 0.5 * len(values) or sum(map(len, texts)) > LONGEST_QUESTION * len(texts):
        return 0.0
    question_share = sum(bool(QUESTION_WORDS.search(text)) for text in texts) / len(texts)
    return question_share * len(set(texts)) / len(texts)


def wrong_texts(rows: Sequence[Mapping[str, Any]], columns: Mapping[str, str], named: Mapping[str, str]) -> list[str]:
    """Warnings of columns of texts that hold ids or one value; where a person has named such a column it is plainly
    wrong, and refused."""
    warnings = []
    for field, option in TEXT_OPTIONS.items():
        column, values = columns.get(field, ""), _values(rows, columns, field)
        if len(values) < LEAST_VALUES:
            continue
        value, count = Counter(values).most_common(1)[0]
        alike = count >= NEARLY_ALL * len(values)
        digits = sum(any(map(str.isdigit, value)) for value in values)
        words = all(map(ASCII_WORD.fullmatch, values)) and digits >= LEAST_DIFFERENT * len(values)
        ids = words and (count == 1 or field == "question")  # labels, such as VIP1, describe users
        numbers = count == 1 and not any(any(map(str.isalpha, value)) for value in values)
        if alike:
            fault = f"{count:,} of its {len(values):,} values are the same, {visible(value[:40])}"
        else:
            fault = f"its {len(values):,} values look like ids, such as {visible(value[:40])}"
        if named.get(field) and (numbers or (alike and field == "question")):
            raise DataError(f"{option} {visible(column)}: {fault}. Name the column of texts.")
        if alike or ids or numbers:
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
