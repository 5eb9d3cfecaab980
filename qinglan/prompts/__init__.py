"""The one renderer of prompts: teacher, training, rollout and serving all call it.

Questions, profiles and histories are data. In the rewriting prompts each stands on one line of its own, so
no text can open another field; the judge gets them as JSON strings, which nothing inside can close. Nor can a text
open a turn of the chat: control tokens such as <|im_start|> stand in it with full-width brackets, or escaped in JSON.
The words around them are in the language of the system's text, Chinese or English.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol

from qinglan.errors import ConfigError, DataError
from qinglan.text.text import is_chinese, neutralise_tokens, one_line

PROMPTS_FOLDER = Path(__file__).parent


class PromptWords(NamedTuple):
    """Texts that are the same in every prompt of a language: names of the fields, and the requests."""

    question: str
    profile: str
    history: str
    rewrite: str
    """Name of the judged rewrite, in the judge's material."""

    teacher: str
    student: str
    need: str

    @property
    def fields(self) -> tuple[str, str, str]:
        """Names of the fields, in the order in which a prompt has them, each on its own line."""
        return self.question, self.profile, self.history


CHINESE = PromptWords(
    "原始查询", "用户画像", "历史摘要", "改写",
    teacher="请改写这个查询，使其更适合知识库检索。只返回改写后的查询，不要其他内容。",
    student="请改写。",
    need="请还原成一句独立的问题。",
)  # fmt: skip
ENGLISH = PromptWords(
    "Query", "User profile", "History", "Rewrite",
    teacher="Rewrite this query so that it finds the right passage of the knowledge base. "
    "Answer with the rewritten query alone.",
    student="Rewrite it.",
    need="Restore it to one question that stands alone.",
)  # fmt: skip
LANGUAGES = (CHINESE, ENGLISH)

Message = dict[Literal["role", "content"], str]
SystemPrompt = str | dict[str, str]
"""A prompt in the profile: one text for all tenants of the sheet, or a text for each; empty takes the files."""


class PromptInput(Protocol):
    """Fields of a question that a prompt needs: a row, a served request and a rollout all have them."""

    @property
    def tenant_id(self) -> str: ...
    @property
    def question(self) -> str: ...
    @property
    def user_profile(self) -> str: ...
    @property
    def history_summary(self) -> str: ...


class Question(NamedTuple):
    """A question with its context: profile and history."""

    tenant_id: str
    question: str
    user_profile: str = ""
    history_summary: str = ""


DIGEST_SAMPLE = Question("tenant", "那它\n一天吃几次？", "30岁 老人", "用户正在了解虾青素软胶囊")
"""The sample that the digest is taken over: every field, with a line end in one."""

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


LABEL_FORMAT: dict[str, Any] = {
    "type": "json_schema",
    "json_schema": {
        "name": "relevance",
        "strict": True,
        "schema": {
            "type": "object",
            "additionalProperties": False,
            "required": ["评分", "理由"],
            "properties": {"评分": {"type": "integer", "enum": [0, 1, 2, 3]}, "理由": {"type": "string"}},
        },
    },
}

CHOICE_FORMAT: dict[str, Any] = {
    "type": "json_schema",
    "json_schema": {
        "name": "choice",
        "strict": True,
        "schema": {
            "type": "object",
            "additionalProperties": False,
            "required": ["段落"],
            "properties": {"段落": {"type": "array", "items": {"type": "integer"}}},
        },
    },
}


PSEUDO_FORMAT: dict[str, Any] = {
    "type": "json_schema",
    "json_schema": {
        "name": "question",
        "strict": True,
        "schema": {
            "type": "object",
            "additionalProperties": False,
            "required": ["历史摘要", "原始查询", "独立问题", "检索词"],
            "properties": {name: {"type": "string"} for name in ("历史摘要", "原始查询", "独立问题", "检索词")},
        },
    },
}


def words_of(system: str) -> PromptWords:
    """The texts of a prompt: English if the system prompt is, else Chinese."""
    return CHINESE if _chinese_prompt(system) else ENGLISH


@lru_cache(maxsize=64)
def _chinese_prompt(system: str) -> bool:
    """Asked twice for each row, of a few system prompts."""
    return not system.strip() or is_chinese(system)


def prompt_file(name: str) -> Path:
    """The path of a prompt file in this folder, whether or not it exists."""
    return PROMPTS_FOLDER / f"{name}.txt"


@cache
def template(name: str) -> str:
    """The text of a prompt file of this folder."""
    path = prompt_file(name)
    if not path.is_file():
        raise ConfigError(
            f"No prompt for {name!r}. Set `system_prompt` in the profile: a text, or a file beside the profile."
        )
    return path.read_text(encoding="utf-8").strip()


def own_prompt(prompt: SystemPrompt, tenant: str) -> str:
    """The profile's own prompt for a tenant; empty where it has none."""
    return prompt if isinstance(prompt, str) else prompt.get(tenant, "")


def teacher_messages(prompt_input: PromptInput, system: SystemPrompt = "") -> list[Message]:
    """The paid model's prompt; `system` replaces the prompt files."""
    tenant = prompt_input.tenant_id
    text = own_prompt(system, tenant) or template(f"teacher.{tenant}")
    return _chat(text, prompt_input, words_of(text).teacher)


def student_prompt(tenant: str, system: SystemPrompt = "") -> str:
    """The student's system prompt of a tenant."""
    return own_prompt(system, tenant) or template(f"student.{tenant}")


def student_messages(prompt_input: PromptInput, system: SystemPrompt = "") -> list[Message]:
    """The student's prompt, in training and in serving."""
    text = student_prompt(prompt_input.tenant_id, system)
    return _chat(text, prompt_input, words_of(text).student)


def student_answer(rewrite: str) -> Message:
    """The answer that a student learns: a text, whatever the teacher wrote."""
    return {"role": "assistant", "content": neutralise_tokens(rewrite)}


def refuse_control_tokens(messages: Sequence[Mapping[str, str]], where: str) -> None:
    """Raise a DataError if a message of a chat holds what a tokenizer could read as a control token."""
    for message in messages:
        if message["role"] != "system" and neutralise_tokens(message["content"]) != message["content"]:
            raise DataError(
                f"{where}: the {message['role']}'s text holds < or [, which no prompt does. Convert again."
            )


def student_digest(systems: Mapping[str, str]) -> str:
    """Digest of the prompt that this code shows a student, fields and request included, by tenant's system prompt.

    A model carries the one of its training: where serving's is another, it would be asked what it never learned.
    """
    shown = {tenant: _digested_prompt(tenant, systems[tenant]) for tenant in sorted(systems)}
    return hashlib.sha256(json.dumps(shown, ensure_ascii=False).encode()).hexdigest()


def _digested_prompt(tenant: str, system: str) -> list[Message]:
    """The sample's prompt; a tenant whose prompt is a file of this folder is told by its name alone."""
    words = words_of(system)
    return _turns(system or tenant, _fields(DIGEST_SAMPLE, words), words.student)


def parse_user_message(message: str) -> tuple[Question, str]:
    """The fields of a user's message in any language, and what is asked for.

    Each field is one line, so a line that opens a field twice is the text of nobody's prompt: the first counts.
    """
    body, _, closing = message.rpartition("\n\n")
    names = {name: field for words in LANGUAGES for field, name in zip(words._fields, words.fields, strict=False)}
    fields: dict[str, str] = {}
    for line in body.split("\n"):
        name, mark, text = line.partition(": ")
        if mark and name in names:
            fields.setdefault(names[name], text)
    return Question("", fields.get("question", ""), fields.get("profile", ""), fields.get("history", "")), closing


def need_messages(prompt_input: PromptInput, system: str = "") -> list[Message]:
    """Ask for the question as it would stand alone, in the user's own words."""
    text = system or template("need")
    return _chat(text, prompt_input, words_of(text).need)


def judge_messages(prompt_input: PromptInput, rewrite: str, system: str = "") -> list[Message]:
    """Ask for a score of 1 to 5 with a reason; the answer has the shape of JUDGE_FORMAT."""
    text = system or template("judge")
    words = words_of(text)
    return _as_json(text, {**_named(prompt_input, words), words.rewrite: rewrite})


def judge_pair_messages(prompt_input: PromptInput, first: str, second: str) -> list[Message]:
    """Ask which of two rewrites is better; the answer has the shape of PAIR_FORMAT."""
    return _as_json(template("judge_pair"), {**_named(prompt_input, CHINESE), "改写甲": first, "改写乙": second})


def label_messages(need: str, title: str, content: str) -> list[Message]:
    """Ask how far a passage answers a need; the answer has the shape of LABEL_FORMAT."""
    return _as_json(template("label"), {"检索需求": need, "段落标题": title, "段落": content})


def choice_messages(need: str, headings: Sequence[str], most: int) -> list[Message]:
    """Ask which of these passages, numbered from 1, may answer a need; the answer has the shape of CHOICE_FORMAT."""
    listed = {str(number): heading for number, heading in enumerate(headings, 1)}
    return _as_json(template("label_choice"), {"检索需求": need, "最多": most, "段落目录": listed})


def hindsight_messages(prompt_input: PromptInput, title: str, content: str) -> list[Message]:
    """Ask for a rewrite by a teacher that sees the passage which answers."""
    return _as_json(
        template("hindsight"), {**_named(prompt_input, CHINESE), "相关段落标题": title, "相关段落": content}
    )


def pseudo_messages(title: str, content: str, example: PromptInput) -> list[Message]:
    """Ask for a question that a passage answers, in the manner of an example; the answer has the shape of
    PSEUDO_FORMAT."""
    return _as_json(template("pseudo"), {"段落标题": title, "段落": content, "示例": _named(example, CHINESE)})


def _as_json(system: str, data: Mapping[str, Any]) -> list[Message]:
    """All data as one JSON object of texts, so that no text can end its field or be read as a control token."""
    dumped = json.dumps(data, ensure_ascii=False)
    escaped = dumped.replace("<", "\\u003c").replace("[", "\\u005b")  # it has no lists: each bracket is of a text
    return [{"role": "system", "content": system}, {"role": "user", "content": escaped}]


def _fields(prompt_input: PromptInput, words: PromptWords) -> str:
    fields = ((name, one_line(text)) for name, text in _named(prompt_input, words).items() if text.strip())
    return "\n".join(f"{name}: {neutralise_tokens(text)}" for name, text in fields)


def _named(prompt_input: PromptInput, words: PromptWords) -> dict[str, str]:
    texts = prompt_input.question, prompt_input.user_profile, prompt_input.history_summary
    return dict(zip(words.fields, texts, strict=True))


def _chat(system: str, prompt_input: PromptInput, ask: str) -> list[Message]:
    return _turns(system, _fields(prompt_input, words_of(system)), ask)


def _turns(system: str, fields: str, ask: str) -> list[Message]:
    return [{"role": "system", "content": system}, {"role": "user", "content": f"{fields}\n\n{ask}"}]
