"""Turns an exported conversation, [{"role": "user", "content": "..."}], into the lines that a prompt shows.

chat_lines(read_turns([{"role": "user", "content": "有虾青素吗"}]))      # "用户：有虾青素吗"
"""

import ast
import json
import re
import warnings
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Literal, NamedTuple

from qinglan.text.text import is_chinese

ROLES: dict[str, Literal["user", "assistant"]] = {
    **dict.fromkeys(
        (
            "user", "human", "customer", "client", "visitor", "buyer", "用户", "客户", "顾客", "访客", "买家",
            "咨询者", "咨询人", "家长", "学员", "患者",
        ),
        "user",
    ),
    **dict.fromkeys(
        (
            "assistant", "bot", "gpt", "agent", "ai", "model", "service", "seller", "客服", "助手", "机器人", "坐席",
            "卖家", "商家", "店员", "店家", "导购", "顾问", "咨询师", "老师", "医生",
        ),
        "assistant",
    ),
}  # fmt: skip
"""Names of the two sides of a conversation. Turns under other names, such as a system prompt, are left out."""

SHOWN = {"user": "用户：", "assistant": "助手："}
SHOWN_IN_ENGLISH = {"user": "User: ", "assistant": "Assistant: "}
KEYS = (("role", "content"), ("from", "value"), ("speaker", "text"))
"""Names of a turn's side and text in common exports."""


TURN_START = re.compile(
    rf"(?<!\w)(?:{'|'.join(sorted(map(re.escape, ROLES), key=len, reverse=True))})\s?[:：]", re.IGNORECASE
)
"""Pattern of a side's name and a colon, as chat_lines writes them and as people type them."""

SENTENCE_END = re.compile(r"[。！？；!?;]+\s*|\.\s+")


class Turn(NamedTuple):
    side: Literal["user", "assistant"]
    text: str


def read_turns(value: Any) -> list[Turn] | None:
    """Read the turns of an exported conversation, a list or the text of a list in a cell; None for anything else."""
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


def read_history(value: Any) -> list[Turn] | None:
    """Read the turns before a question; None if the value has another form.

    The value is an exported conversation, or pairs of question and answer as LLaMA-Factory and ChatGLM write them:
    [["有虾青素吗", "有的"]].
    """
    pairs = _parsed(value) if isinstance(value, str) and value.lstrip().startswith("[[") else value
    if isinstance(pairs, list) and pairs and all(map(_is_pair, pairs)):
        turns = (turn for question, answer in pairs for turn in (Turn("user", question), Turn("assistant", answer)))
        return [Turn(turn.side, turn.text.strip()) for turn in turns if turn.text.strip()]
    return read_turns(value)


def _is_pair(item: Any) -> bool:
    return isinstance(item, list | tuple) and len(item) == 2 and all(isinstance(text, str) for text in item)


def _parsed(text: str) -> Any:
    """Parse a cell's list in JSON or in Python's notation, which pandas writes into tables; None if it is neither."""
    # literal_eval runs no code: it accepts only literals of Python.
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
    """Read a turn's text. Text in parts, [{"type": "text", "text": "..."}], is joined, and other parts are left
    out."""
    if isinstance(content, list) and all(isinstance(part, dict) and "type" in part for part in content):
        return "\n".join(str(part["text"]) for part in content if part["type"] == "text" and "text" in part)
    return content if isinstance(content, str) else None


def chat_lines(turns: Sequence[Turn]) -> str:
    """Write one line per turn, as a prompt shows the history. The sides are named in the language of the
    conversation."""
    texts = [" ".join(turn.text.split()) for turn in turns]
    shown = SHOWN if is_chinese("".join(texts)) else SHOWN_IN_ENGLISH
    return "\n".join(f"{shown[turn.side]}{text}" for turn, text in zip(turns, texts, strict=True))


def later_parts(history: str) -> list[str]:
    """Return ever shorter versions of a history: first without its oldest turns, then also without the oldest
    sentences of the newest turn, at last empty. A summary without turns counts as one turn.

    Turns may be on separate lines, or all on one line as in prompts.
    """
    turns = [match.start() for match in TURN_START.finditer(history)]
    sentences = [match.end() for match in SENTENCE_END.finditer(history, turns[-1] if turns else 0)]
    starts = sorted({*turns, *sentences} - {0, len(history)})
    return [*(history[start:] for start in starts), ""]
