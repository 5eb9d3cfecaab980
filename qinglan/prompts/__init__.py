"""The one renderer of prompts: teacher, training, rollout and serving all call it.

Questions, profiles and histories are data. In the rewriting prompts each stands on one line of its own, so
no text can open another field; the judge gets them as JSON strings, which nothing inside can close.
"""

import json
from functools import cache
from pathlib import Path
from typing import Any, Literal, Protocol

from qinglan.errors import ConfigError
from qinglan.text import one_line

FOLDER = Path(__file__).parent
TEACHER_ASKS = "请改写这个查询，使其更适合知识库检索。只返回改写后的查询，不要其他内容。"
STUDENT_ASKS = "请改写。"
NEED_ASKS = "请还原成一句独立的问题。"

Message = dict[Literal["role", "content"], str]


class Asked(Protocol):
    """What a prompt needs of a question: a row, a served request, a rollout."""

    @property
    def tenant_id(self) -> str: ...
    @property
    def question(self) -> str: ...
    @property
    def user_profile(self) -> str: ...
    @property
    def history_summary(self) -> str: ...


JUDGE_FORMAT: dict[str, Any] = {
    "type": "json_schema",
    "json_schema": {
        "name": "judgement",
        "strict": True,
        "schema": {
            "type": "object",
            "additionalProperties": False,
            "required": ["意图保留", "自足", "无编造", "简洁", "综合得分", "评分理由"],
            "properties": {
                **{name: {"type": "number"} for name in ("意图保留", "自足", "无编造", "简洁", "综合得分")},
                "评分理由": {"type": "string"},
            },
        },
    },
}

PAIR_FORMAT: dict[str, Any] = {
    "type": "json_schema",
    "json_schema": {
        "name": "preference",
        "strict": True,
        "schema": {
            "type": "object",
            "additionalProperties": False,
            "required": ["更好", "理由"],
            "properties": {"更好": {"type": "string", "enum": ["甲", "乙", "相同"]}, "理由": {"type": "string"}},
        },
    },
}


@cache
def template(name: str) -> str:
    """The text of a prompt file of this folder."""
    path = FOLDER / f"{name}.txt"
    if not path.is_file():
        raise ConfigError(
            f"No prompt for {name!r} in qinglan/prompts. Write {path.name}, or set `system_prompt` in the profile."
        )
    return path.read_text(encoding="utf-8").strip()


def teacher_messages(asked: Asked, system: str = "") -> list[Message]:
    """What the paid model is asked; `system` replaces the tenant's own prompt."""
    return _chat(system or template(f"teacher.{asked.tenant_id}"), _fields(asked), TEACHER_ASKS)


def student_messages(asked: Asked, system: str = "") -> list[Message]:
    """What our model is trained on and served with."""
    return _chat(system or template(f"student.{asked.tenant_id}"), _fields(asked), STUDENT_ASKS)


def need_messages(asked: Asked) -> list[Message]:
    """Asks for the question as it would stand alone, in the user's own words."""
    return _chat(template("need"), _fields(asked), NEED_ASKS)


def judge_messages(asked: Asked, rewrite: str) -> list[Message]:
    """Asks for a score of 1 to 5 with a reason; the answer has the shape of JUDGE_FORMAT."""
    return _fenced("judge", asked, {"改写": rewrite})


def judge_pair_messages(asked: Asked, first: str, second: str) -> list[Message]:
    """Asks which of two rewrites is better; the answer has the shape of PAIR_FORMAT."""
    return _fenced("judge_pair", asked, {"改写甲": first, "改写乙": second})


def _fenced(name: str, asked: Asked, rewrites: dict[str, str]) -> list[Message]:
    """All data as one JSON object: nothing inside can close it."""
    data = {"原始查询": asked.question, "用户画像": asked.user_profile, "历史摘要": asked.history_summary, **rewrites}
    return [
        {"role": "system", "content": template(name)},
        {"role": "user", "content": json.dumps(data, ensure_ascii=False)},
    ]


def _fields(asked: Asked) -> str:
    named = {"原始查询": asked.question, "用户画像": asked.user_profile, "历史摘要": asked.history_summary}
    return "\n".join(f"{name}: {one_line(text)}" for name, text in named.items() if text.strip())


def _chat(system: str, fields: str, ask: str) -> list[Message]:
    return [{"role": "system", "content": system}, {"role": "user", "content": f"{fields}\n\n{ask}"}]
