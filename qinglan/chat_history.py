"""A conversation as programs export it, [{"role": "user", "content": "..."}], as the lines that a prompt shows.

chat_lines(read_turns([{"role": "user", "content": "有虾青素吗"}]))      # "用户：有虾青素吗"
"""

import ast
import json
import warnings
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Literal, NamedTuple

ROLES: dict[str, Literal["user", "assistant"]] = {
    **dict.fromkeys(("user", "human", "customer", "client", "visitor", "用户", "客户", "顾客", "访客"), "user"),
    **dict.fromkeys(
        ("assistant", "bot", "gpt", "agent", "ai", "model", "service", "客服", "助手", "机器人", "坐席"), "assistant"
    ),
}
"""Names of the two sides; what others say, such as a system prompt, is no part of the conversation."""

SHOWN = {"user": "用户", "assistant": "助手"}
KEYS = (("role", "content"), ("from", "value"), ("speaker", "text"))
"""Names of a turn's side and text in common exports."""


class Turn(NamedTuple):
    side: Literal["user", "assistant"]
    text: str


def read_turns(value: Any) -> list[Turn] | None:
    """The turns of an exported conversation, also one that a cell holds as JSON; None for anything else."""
    if isinstance(value, str) and value.lstrip().startswith("[{"):
        value = _parsed(value)
    if not isinstance(value, list) or not value:
        return None
    turns = []
    for item in value:
        turn = _turn(item)
        if turn is None:
            return None
        side, text = turn
        if side in ROLES and text.strip():
            turns.append(Turn(ROLES[side], text.strip()))
    return turns


def _parsed(text: str) -> Any:
    """A cell's list, as JSON or as Python writes it, which tables that were saved by pandas hold; else None."""
    for parse in (json.loads, ast.literal_eval):
        with warnings.catch_warnings(), suppress(ValueError, SyntaxError, RecursionError, MemoryError):
            warnings.simplefilter("ignore", SyntaxWarning)  # a backslash in somebody's text
            return parse(text)
    return None


def _turn(item: Any) -> tuple[str, str] | None:
    if isinstance(item, dict):
        for side, key in KEYS:
            text = _text(item.get(key))
            if isinstance(item.get(side), str) and text is not None:
                return item[side].strip().lower(), text
    return None


def _text(content: Any) -> str | None:
    """A turn's text, also one in parts, [{"type": "text", "text": "..."}], whose images are left out."""
    if isinstance(content, list) and all(isinstance(part, dict) and "type" in part for part in content):
        return "\n".join(str(part["text"]) for part in content if part["type"] == "text" and "text" in part)
    return content if isinstance(content, str) else None


def chat_lines(turns: Sequence[Turn]) -> str:
    """A line for each turn, as a prompt shows the history."""
    return "\n".join(f"{SHOWN[turn.side]}：{' '.join(turn.text.split())}" for turn in turns)
