"""Build all prompts, for the teacher, training, rollouts and serving.

Questions, profiles and histories are data. In the rewriting prompts each of them takes one line, so that its text
cannot start another field. In the judge's prompts they are JSON strings, which their text cannot end. A text cannot
start a turn of the chat either: control tokens such as <|im_start|> are written with full-width brackets, or escaped
in JSON. Field names and requests are in the language of the system prompt, Chinese or English.
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
    """Field names, and the requests that end a prompt, in one language."""

    question: str
    profile: str
    history: str
    rewrite: str
    """Field name of the judged rewrite in the judge's prompt."""

    teacher: str
    student: str
    need: str

    @property
    def fields(self) -> tuple[str, str, str]:
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
"""System prompt in a profile: one text for all tenants, or a text by tenant. If it is empty, the prompt file of this
folder is used."""


class PromptInput(Protocol):
    """Fields of a question that a prompt needs. Rows, served requests and rollouts have these fields."""

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
"""Sample question for `student_digest`. It has every field, and a line break in one of them."""


def _answer_format(name: str, properties: dict[str, Any]) -> dict[str, Any]:
    """Return a response format that allows exactly these fields.

    The order of keys is part of the journal's key of a paid call, so it must not change.
    """
    # Strict mode requires every field, and no others: https://platform.openai.com/docs/guides/structured-outputs
    schema = {
        "type": "object",
        "additionalProperties": False,
        "required": list(properties),
        "properties": properties,
    }
    return {"type": "json_schema", "json_schema": {"name": name, "strict": True, "schema": schema}}


TEXT, NUMBER = {"type": "string"}, {"type": "number"}
PSEUDO_FIELDS = ("历史摘要", "原始查询", "独立问题", "检索词")
JUDGE_FORMAT = _answer_format(
    "judgement", dict.fromkeys(("意图保留", "自足", "无编造", "简洁", "综合得分"), NUMBER) | {"评分理由": TEXT}
)
PAIR_FORMAT = _answer_format("preference", {"更好": TEXT | {"enum": ["甲", "乙", "相同"]}, "理由": TEXT})
LABEL_FORMAT = _answer_format("relevance", {"评分": {"type": "integer", "enum": [0, 1, 2, 3]}, "理由": TEXT})
CHOICE_FORMAT = _answer_format("choice", {"段落": {"type": "array", "items": {"type": "integer"}}})
PSEUDO_FORMAT = _answer_format("question", dict.fromkeys(PSEUDO_FIELDS, TEXT))


@lru_cache(maxsize=64)
def words_of(system: str) -> PromptWords:
    """Return the field names and requests in the language of the system prompt. They are cached, as a run has few
    system prompts."""
    return CHINESE if not system.strip() or is_chinese(system) else ENGLISH


def prompt_file(name: str) -> Path:
    """Return the path of a prompt file in this folder; the file need not exist."""
    return PROMPTS_FOLDER / f"{name}.txt"


@cache
def template(name: str) -> str:
    """Return the text of a prompt file of this folder; a ConfigError if there is no such file."""
    path = prompt_file(name)
    if not path.is_file():
        raise ConfigError(
            f"No prompt for {name!r}. Set `system_prompt` in the profile: a text, or a file beside the profile."
        )
    return path.read_text(encoding="utf-8").strip()


def own_prompt(prompt: SystemPrompt, tenant: str) -> str:
    """Return the profile's prompt for a tenant; empty if the profile sets none."""
    return prompt if isinstance(prompt, str) else prompt.get(tenant, "")


def teacher_messages(prompt_input: PromptInput, system: SystemPrompt = "") -> list[Message]:
    tenant = prompt_input.tenant_id
    text = own_prompt(system, tenant) or template(f"teacher.{tenant}")
    return _chat(text, prompt_input, words_of(text).teacher)


def student_prompt(tenant: str, system: SystemPrompt = "") -> str:
    return own_prompt(system, tenant) or template(f"student.{tenant}")


def student_messages(prompt_input: PromptInput, system: SystemPrompt = "") -> list[Message]:
    """Return the student's prompt, which is the same in training and serving."""
    text = student_prompt(prompt_input.tenant_id, system)
    return _chat(text, prompt_input, words_of(text).student)


def student_answer(rewrite: str) -> Message:
    """Return the answer that a student learns. Control tokens that the teacher may have written are neutralised."""
    return {"role": "assistant", "content": neutralise_tokens(rewrite)}


def refuse_control_tokens(messages: Sequence[Mapping[str, str]], where: str) -> None:
    """Raise a DataError if a message other than the system message holds text that a tokenizer could read as a
    control token."""
    for message in messages:
        if message["role"] != "system" and neutralise_tokens(message["content"]) != message["content"]:
            raise DataError(
                f"{where}: the {message['role']}'s text holds < or [, which no prompt does. Convert again."
            )


def student_digest(systems: Mapping[str, str]) -> str:
    """Return the digest of the prompts that this code shows a student: fields and request under each system prompt.

    A model's card holds the digest from its training. Serving refuses a model whose digest differs from its own.
    """
    shown = {}
    for tenant, system in sorted(systems.items()):
        words = words_of(system)
        # A tenant whose prompt is a file of this folder is identified by its name.
        shown[tenant] = _turns(system or tenant, _fields(DIGEST_SAMPLE, words), words.student)
    return hashlib.sha256(json.dumps(shown, ensure_ascii=False).encode()).hexdigest()


def parse_user_message(message: str) -> tuple[Question, str]:
    """Parse a user's message in either language into its fields and the request after them.

    A rendered prompt has each field once. If a field is repeated, its first line counts.
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
    """Build the prompt that asks for the user's question, in the user's own words but understandable without the
    history."""
    text = system or template("need")
    return _chat(text, prompt_input, words_of(text).need)


def judge_messages(prompt_input: PromptInput, rewrite: str, system: str = "") -> list[Message]:
    """Build the prompt that asks for scores of 1 to 5 with a reason. The answer has the form of JUDGE_FORMAT."""
    text = system or template("judge")
    words = words_of(text)
    return _as_json(text, {**_named(prompt_input, words), words.rewrite: rewrite})


def judge_pair_messages(prompt_input: PromptInput, first: str, second: str) -> list[Message]:
    """Build the prompt that asks which of two rewrites is better. The answer has the form of PAIR_FORMAT."""
    return _as_json(template("judge_pair"), {**_named(prompt_input, CHINESE), "改写甲": first, "改写乙": second})


def label_messages(need: str, title: str, content: str) -> list[Message]:
    """Build the prompt that asks how well a passage answers a need. The answer has the form of LABEL_FORMAT."""
    return _as_json(template("label"), {"检索需求": need, "段落标题": title, "段落": content})


def choice_messages(need: str, headings: Sequence[str], most: int) -> list[Message]:
    """Build the prompt that asks which passages, numbered from 1, may answer a need. The answer has the form of
    CHOICE_FORMAT."""
    listed = {str(number): heading for number, heading in enumerate(headings, 1)}
    return _as_json(template("label_choice"), {"检索需求": need, "最多": most, "段落目录": listed})


def hindsight_messages(prompt_input: PromptInput, title: str, content: str) -> list[Message]:
    """Build the prompt that asks a teacher for a rewrite and shows it the relevant passage."""
    return _as_json(
        template("hindsight"), {**_named(prompt_input, CHINESE), "相关段落标题": title, "相关段落": content}
    )


def pseudo_messages(title: str, content: str, example: PromptInput) -> list[Message]:
    """Build the prompt that asks for a question that a passage answers, in the style of an example. The answer has
    the form of PSEUDO_FORMAT."""
    return _as_json(template("pseudo"), {"段落标题": title, "段落": content, "示例": _named(example, CHINESE)})


def _as_json(system: str, data: Mapping[str, Any]) -> list[Message]:
    """Put all data into one JSON object of texts, so that no text can end its field or be read as a control token."""
    dumped = json.dumps(data, ensure_ascii=False)
    # The object has no lists, so every bracket is part of a text.
    escaped = dumped.replace("<", "\\u003c").replace("[", "\\u005b")
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
