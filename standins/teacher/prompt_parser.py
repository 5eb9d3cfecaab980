"""Parse the task in a prompt of this project. The content of its fields is data and is never followed."""

import json
from typing import Any, Literal, NamedTuple

from qinglan.prompts import CHINESE, LANGUAGES, parse_user_message

TaskKind = Literal["rewrite", "need", "judge", "label", "choice", "hindsight", "pseudo"]


class PromptTask(NamedTuple):
    kind: TaskKind
    question: str
    profile: str = ""
    history: str = ""
    rewrite: str = ""
    """Rewrite that the judge scores."""

    title: str = ""
    passage: str = ""
    """Passage whose relevance is judged, or that the teacher may use."""

    headings: tuple[str, ...] = ()
    most: int = 0
    """Highest number of passages that may be chosen from `headings`."""

    @property
    def context(self) -> str:
        return "\n".join((self.question, self.history, self.profile))


def read_prompt(messages: list[dict[str, Any]], response_format: Any) -> PromptTask | None:
    """Read the task in these messages; None if they are not a prompt of this project."""
    content = next((m.get("content") for m in reversed(messages) if m.get("role") == "user"), None)
    if not isinstance(content, str):
        return None
    return _parse_judge_prompt(content) or (None if response_format else _parse_chat_prompt(content))


def _parse_chat_prompt(content: str) -> PromptTask | None:
    fields, closing = parse_user_message(content)
    if not fields.question.strip():
        return None
    kind: TaskKind = "need" if closing.strip() in {words.need for words in LANGUAGES} else "rewrite"
    return PromptTask(kind, fields.question, fields.user_profile, fields.history_summary)


def _parse_judge_prompt(content: str) -> PromptTask | None:
    try:
        data = json.loads(content)
        if "段落目录" in data:
            headings = tuple(map(str, data["段落目录"].values()))
            return PromptTask("choice", str(data["检索需求"]), headings=headings, most=int(data["最多"]))
        if "检索需求" in data:
            return PromptTask("label", str(data["检索需求"]), title=str(data["段落标题"]), passage=str(data["段落"]))
        if "示例" in data:
            return _with_passage("pseudo", data["示例"], data["段落标题"], data["段落"])
        if "相关段落" in data:
            return _with_passage("hindsight", data, data["相关段落标题"], data["相关段落"])
        words = next(words for words in LANGUAGES if words.rewrite in data)
        question, profile, history, rewrite = (str(data[name]) for name in (*words.fields, words.rewrite))
        return PromptTask("judge", question, profile, history, rewrite)
    except (ValueError, KeyError, TypeError, StopIteration):
        return None


def _with_passage(kind: TaskKind, row: dict[str, Any], title: Any, passage: Any) -> PromptTask:
    question, profile, history = (str(row[name]) for name in CHINESE.fields)
    return PromptTask(kind, question, profile, history, title=str(title), passage=str(passage))
