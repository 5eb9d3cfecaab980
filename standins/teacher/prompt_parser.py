"""The task in a prompt of this project. Only its fields are read: their content is data."""

import json
from typing import Any, Literal, NamedTuple

from qinglan.prompts import FIELD_NAMES, NEED_INSTRUCTION, parse_user_message

TaskKind = Literal["rewrite", "need", "judge"]


class PromptTask(NamedTuple):
    kind: TaskKind
    question: str
    profile: str = ""
    history: str = ""
    rewrite: str = ""
    """The text that the judge scores."""

    @property
    def context(self) -> str:
        return "\n".join((self.question, self.history, self.profile))


def read_prompt(messages: list[dict[str, Any]], response_format: Any) -> PromptTask | None:
    """The task of these messages; None when they are none of this project's prompts."""
    content = next((m.get("content") for m in reversed(messages) if m.get("role") == "user"), None)
    if not isinstance(content, str):
        return None
    return _parse_judge_prompt(content) or (None if response_format else _parse_chat_prompt(content))


def _parse_chat_prompt(content: str) -> PromptTask | None:
    fields, closing = parse_user_message(content)
    if not fields.get("原始查询", "").strip():
        return None
    kind: TaskKind = "need" if closing.strip() == NEED_INSTRUCTION else "rewrite"
    return PromptTask(kind, *(fields.get(name, "") for name in FIELD_NAMES))


def _parse_judge_prompt(content: str) -> PromptTask | None:
    try:
        data = json.loads(content)
        return PromptTask("judge", *(str(data[name]) for name in (*FIELD_NAMES, "改写")))
    except (ValueError, KeyError, TypeError):
        return None
