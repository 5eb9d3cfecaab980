"""Turn exported chats into questions: each message of the user is a question, and the messages before it are its
history.

A sheet may hold a whole conversation in each cell of a column, or a single message in each row: role, content,
conversation.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from commands.init.guess_columns import CONVERSATION_NAMES, conversation_column, with_names
from qinglan.rows.chat_history import ROLES, Turn, chat_lines

Record = dict[str, Any]
TEXT_NAMES = (
    "content", "text", "message", "value", "utterance", "body", "内容", "消息", "消息内容", "聊天内容", "对话内容",
    "文本", "发言", "话术",
)  # fmt: skip
"""Usual names of the column with a message's text."""

OTHER_ROLES = frozenset({"system", "tool", "function", "developer", "系统", "系统消息", "工具"})
KNOWN_ROLES = 0.9
"""Least share of rows with a known role that a column of speakers' roles must have."""


class MessageColumns(NamedTuple):
    """Columns of a sheet that has a single message of a chat in each row."""

    side: str
    text: str
    conversation: str
    """Empty if no column holds ids of conversations."""


def chat_questions(conversation: str, turns: Sequence[Turn]) -> list[Record]:
    """Turn a conversation into questions: each turn of the user, with the turns before that turn as history."""
    return [
        {"question": turn.text, "history_summary": chat_lines(turns[:at]), "conversation_id": conversation}
        for at, turn in enumerate(turns)
        if turn.side == "user"
    ]


def message_columns(rows: Sequence[Record], named: Mapping[str, str]) -> MessageColumns | None:
    """Find the columns of a sheet with a single chat message in each row; None for any other sheet.

    Such a sheet has a column, under any name, that holds both the user's and the assistant's role. `named` maps
    fields to the columns that a person named.
    """
    names = list(dict.fromkeys(name for row in rows for name in row if name))
    sides = [name for name in names if _holds_sides(rows, name)]
    texts = [named.get("question") or "", *with_names(TEXT_NAMES, names)]
    text = next((name for name in texts if name and name not in sides), "")
    if not sides or text not in names or named.get("history_summary"):
        return None
    free = [name for name in names if name not in (sides[0], text)]
    conversations = [
        named.get("conversation_id") or conversation_column(rows, free),
        *with_names(CONVERSATION_NAMES, free),
    ]
    return MessageColumns(sides[0], text, next(filter(None, conversations), ""))


def _holds_sides(rows: Sequence[Record], name: str) -> bool:
    values = [row[name].strip().lower() for row in rows if isinstance(row.get(name), str) and row[name].strip()]
    known = [value for value in values if value in ROLES or value in OTHER_ROLES]
    return {"user", "assistant"} <= {*map(ROLES.get, known)} and len(known) >= KNOWN_ROLES * len(rows)


def message_questions(rows: Iterable[Record], columns: MessageColumns) -> list[Record]:
    """Turn messages, in the order of their rows, into questions, each with the other cells of its row."""
    chats: dict[str, list[tuple[Turn, Record]]] = {}
    for row in rows:
        side = ROLES.get(str(row.get(columns.side) or "").strip().lower())
        if side and (text := str(row.get(columns.text) or "").strip()):
            cells = {name: value for name, value in row.items() if name not in columns}
            conversation = str(row.get(columns.conversation) or "").strip()
            chats.setdefault(conversation, []).append((Turn(side, text), cells))
    return [
        cells | question
        for conversation, messages in chats.items()
        for cells, question in zip(
            [cells for turn, cells in messages if turn.side == "user"],
            chat_questions(conversation, [turn for turn, _ in messages]),
            strict=True,
        )
    ]
