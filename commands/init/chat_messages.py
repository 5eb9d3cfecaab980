"""Exported chats as questions: each thing that a user says is one, and what was said before is its history.

A sheet may hold a conversation in a cell, or a single message in each row: role, content, conversation.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from commands.init.guess_columns import CONVERSATION_NAMES, conversation_column, with_names
from qinglan.rows.chat_history import ROLES, Turn, chat_lines
from qinglan.terminal import visible

Record = dict[str, Any]
TEXT_NAMES = (
    "content", "text", "message", "value", "utterance", "body", "内容", "消息", "消息内容", "聊天内容", "对话内容",
    "文本", "发言", "话术",
)  # fmt: skip
"""Usual names of the column of what was said."""

OTHER_ROLES = frozenset({"system", "tool", "function", "developer", "系统", "系统消息", "工具"})
KNOWN_ROLES = 0.9
"""Share of the rows that name their speaker's role."""

MOST_SIDES, LONGEST_SIDE = 3, 20
"""Different values of a column of speakers (two sides and a system), and characters of each."""

CHATS, LEAST_CHANGES, FIRST_ALIKE = 0.9, 0.6, 0.7
"""Shares in a sheet of messages: of conversations with both sides, of rows with another side than the row before, and
of conversations that the same side begins. A label of questions, such as yes or no, comes in any order."""

TURN_NUMBER = re.compile("轮|turn", re.I)


class MessageColumns(NamedTuple):
    """Columns of a sheet that has a single message of a chat in each row."""

    side: str
    text: str
    conversation: str
    """Empty where no column holds ids of conversations."""


def chat_questions(conversation: str, turns: Sequence[Turn]) -> list[Record]:
    """The questions of a conversation: each turn of the user, with what was said before."""
    return [
        {"question": turn.text, "history_summary": chat_lines(turns[:at]), "conversation_id": conversation}
        for at, turn in enumerate(turns)
        if turn.side == "user"
    ]


def message_columns(rows: Sequence[Record], named: Mapping[str, str]) -> MessageColumns | None:
    """The columns of rows that are single messages; None for any other sheet.

    Both sides of a chat are in one column, whatever its name. `named` are columns that a person gave, by field.
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


def unknown_sides_note(rows: Sequence[Record], columns: Mapping[str, str]) -> str:
    """A warning of a sheet that seems to hold a message in each row, by speakers with unknown names; else empty."""
    conversation = columns.get("conversation_id", "")
    if not conversation or columns.get("history_summary"):
        return ""
    names = dict.fromkeys(name for row in rows for name in row if name and not TURN_NUMBER.search(name))
    for name in names:
        if name not in columns.values() and (speakers := _alternating(rows, name, conversation)):
            shown = [*map(visible, speakers[:MOST_SIDES]), *(["..."] if len(speakers) > MOST_SIDES else [])]
            return (
                f"This looks like a sheet with a message of a chat in each row: in most conversations {name} takes "
                f"turns between speakers ({', '.join(shown)}), who are not all named as a user or an assistant, so "
                f"answers count as questions, too. Write user and assistant into {name}."
            )
    return ""


def _alternating(rows: Sequence[Record], name: str, conversation: str) -> list[str]:
    """The short values of the column, the commonest first, where two sides take turns as in chats; else none."""
    by_conversation: dict[str, list[str]] = {}
    for row in rows:
        side = "" if row.get(name) is None else str(row[name]).strip()
        by_conversation.setdefault(str(row.get(conversation) or "").strip(), []).append(side)
    chats = [*by_conversation.values()]
    speakers = Counter(side for chat in chats for side in sorted({*chat}))
    if len(chats) < 2 or not all(0 < len(side) <= LONGEST_SIDE for side in speakers):
        return []
    chats = _two_sides(chats, speakers)
    both = sum(len(set(chat)) > 1 for chat in chats)
    changes = [before != after for chat in chats for before, after in pairwise(chat)]
    [(_, first)] = Counter(chat[0] for chat in chats).most_common(1) or [("", 0)]
    alternate = (
        both >= CHATS * len(by_conversation)
        and sum(changes) >= LEAST_CHANGES * len(changes)
        and first >= FIRST_ALIKE * len(by_conversation)
    )
    return [side for side, _ in speakers.most_common()] if alternate else []


def _two_sides(chats: Sequence[list[str]], speakers: Counter[str]) -> list[list[str]]:
    """The conversations with two sides in place of many names; none where that cannot be.

    One side may have a name in every conversation, and the other, such as agents, one each; or in each conversation
    two others speak, which two rows do not show.
    """
    [(common, count)] = speakers.most_common(1)
    if len(speakers) <= MOST_SIDES:
        return [*chats]
    if count >= CHATS * len(chats):
        return [["common" if side == common else "other" for side in chat] for chat in chats]
    pairs = [
        ["first" if side == chat[0] else "other" for side in chat] for chat in chats if len({*chat}) == 2 < len(chat)
    ]
    return pairs if len(pairs) >= CHATS * len(chats) else []


def message_questions(rows: Iterable[Record], columns: MessageColumns) -> list[Record]:
    """The questions of messages, each with its row's other cells; a conversation has the order of the rows."""
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
