"""What a prompt of this project asks for. Only the fields are read: what stands inside them is data."""

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
    """What the judge is to score."""

    @property
    def context(self) -> str:
        return "\n".join((self.question, self.history, self.profile))


def read_prompt(messages: list[dict[str, Any]], response_format: dict[str, Any] | None) -> PromptTask | None:
    """The task of these messages; None when they are none of this project's prompts."""
    said = next((m.get("content") for m in reversed(messages) if m.get("role") == "user"), None)
    if not isinstance(said, str):
        return None
    return _parse_judge_prompt(said) if response_format else _parse_chat_prompt(said)


def _parse_chat_prompt(said: str) -> PromptTask | None:
    found, closing = parse_user_message(said)
    if not found.get("原始查询", "").strip():
        return None
    kind: TaskKind = "need" if closing.strip() == NEED_INSTRUCTION else "rewrite"
    return PromptTask(kind, *(found.get(name, "") for name in FIELD_NAMES))


def _parse_judge_prompt(said: str) -> PromptTask | None:
    try:
        data = json.loads(said)
        return PromptTask("judge", *(str(data[name]) for name in (*FIELD_NAMES, "改写")))
    except (ValueError, KeyError, TypeError):
        return None
