"""What a prompt of this project asks for. Only the fields are read: what stands inside them is data."""

import json
from typing import Any, Literal, NamedTuple

from qinglan.prompts import FIELDS, NEED_ASKS, read_chat

Kind = Literal["rewrite", "need", "judge"]


class Asked(NamedTuple):
    kind: Kind
    question: str
    profile: str = ""
    history: str = ""
    rewrite: str = ""
    """What the judge is to score."""

    @property
    def context(self) -> str:
        return "\n".join((self.question, self.history, self.profile))


def read_prompt(messages: list[dict[str, Any]], response_format: dict[str, Any] | None) -> Asked | None:
    """The task of these messages; None when they are none of this project's prompts."""
    said = next((m.get("content") for m in reversed(messages) if m.get("role") == "user"), None)
    if not isinstance(said, str):
        return None
    return _judge(said) if response_format else _chat(said)


def _chat(said: str) -> Asked | None:
    found, closing = read_chat(said)
    if not found.get("原始查询", "").strip():
        return None
    kind: Kind = "need" if closing.strip() == NEED_ASKS else "rewrite"
    return Asked(kind, *(found.get(name, "") for name in FIELDS))


def _judge(said: str) -> Asked | None:
    try:
        data = json.loads(said)
        return Asked("judge", *(str(data[name]) for name in (*FIELDS, "改写")))
    except (ValueError, KeyError, TypeError):
        return None
