"""Read requests and build answers in three protocols. Errors never repeat the text of a request."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from kserve import InferRequest, InferResponse
from kserve.errors import InvalidInput
from pydantic import Field, ValidationError

from qinglan.config import Config, Name, Positive, explain_validation_error
from qinglan.prompts import parse_user_message, student_messages
from serving import tensors

INSTANCE_FIELDS = ("query", "tenant_id", "user_profile", "history_summary")
INPUT_TENSORS: list[dict[str, Any]] = [{"name": name, "datatype": "BYTES", "shape": [-1]} for name in INSTANCE_FIELDS]
OUTPUT_TENSORS: list[dict[str, Any]] = [
    {"name": name, "datatype": "BYTES", "shape": [-1]} for name in ("rewritten_query", "fallback")
]


class Instance(Config):
    """Question as the RAG service sends it."""

    query: str = Field(min_length=1, max_length=4000, pattern=r"\S")
    user_profile: str = Field(default="", max_length=4000)
    history_summary: str = Field(default="", max_length=20000)
    tenant_id: Name

    @property
    def question(self) -> str:
        """The query, under the name that prompts use."""
        return self.query


class ChatMessage(Config):
    """Message of a chat."""

    role: Literal["system", "user"]
    content: str


class StreamOptions(Config):
    include_usage: bool = False


class ChatRequest(Config):
    """Request for a chat completion, with the options that a rewriter supports."""

    model: str
    messages: tuple[ChatMessage, ...]
    stream: bool = False
    stream_options: StreamOptions | None = None
    temperature: float | None = Field(default=None, ge=0, le=0)
    """Temperature; only 0 is allowed, because the model was evaluated with greedy decoding."""

    n: Literal[1] = 1
    max_tokens: Positive | None = None
    """Accepted and ignored, like `max_completion_tokens`, because the model has its own length limit."""

    max_completion_tokens: Positive | None = None
    user: str = ""
    """Accepted and ignored."""


def read_v1(payload: Any) -> list[Instance]:
    instances = payload.get("instances") if isinstance(payload, dict) else None
    if not isinstance(instances, list) or not 0 < len(instances) <= tensors.MOST_INSTANCES:
        raise InvalidInput(
            f'Send application/json: {{"instances": [...]}} with 1 to {tensors.MOST_INSTANCES} questions.'
        )
    return [_instance(values, f"instances[{number}]") for number, values in enumerate(instances)]


def read_v2(request: InferRequest) -> list[Instance]:
    """Read the questions of a V2 request, which has one tensor for each field, all of the same length."""
    columns = tensors.read_texts(request, INSTANCE_FIELDS)
    if missing := [name for name in INSTANCE_FIELDS[:2] if name not in columns]:
        raise InvalidInput(f"inputs: {' and '.join(missing)} is missing.")
    rows = len(columns["query"])
    tensors.check_text_count(rows)
    if odd := [name for name, values in columns.items() if len(values) != rows]:
        raise InvalidInput(f"inputs: {odd[0]} has {len(columns[odd[0]])} texts, and query {rows}.")
    return [_instance({name: columns[name][row] for name in columns}, f"row {row}") for row in range(rows)]


def answer_v2(request: InferRequest, predictions: Sequence[Mapping[str, str]], version: str) -> InferResponse:
    """Build the output tensors of a V2 answer; `fallback` is empty if the text is the model's own."""
    data = {kind["name"]: [prediction.get(kind["name"], "") for prediction in predictions] for kind in OUTPUT_TENSORS}
    return tensors.infer_response(request, version, OUTPUT_TENSORS, data, len(predictions))


def read_chat_request(payload: Any) -> ChatRequest:
    try:
        return ChatRequest.model_validate(payload)
    except ValidationError as error:
        raise InvalidInput(explain_validation_error(error, show_input=False)) from error


def read_messages(messages: Sequence[ChatMessage], systems: Mapping[str, str]) -> Instance:
    """Read the question from the messages, which must equal a training prompt byte for byte.

    The system message identifies the tenant.
    """
    tenants = [tenant for tenant, text in systems.items() if messages and messages[0].content == text]
    chat = [message.model_dump() for message in messages]
    if tenants and len(messages) == 2:
        fields, _ = parse_user_message(messages[1].content)
        question = fields._replace(tenant_id=tenants[0])
        if question.question.strip() and chat == student_messages(question, systems[tenants[0]]):
            values = dict(zip(("tenant_id", "query", *INSTANCE_FIELDS[2:]), question, strict=True))
            return _instance(values, "messages")
    raise InvalidInput(
        "messages: not this model's prompt, which is a system message of one of its tenants and a user message as "
        "qinglan.prompts.student_messages renders it. Other applications ask :predict, which renders it for them."
    )


def _instance(values: Any, where: str) -> Instance:
    for field, value in values.items() if isinstance(values, dict) else ():
        if isinstance(value, str):
            tensors.check_text(value, f"{where}.{field}" if field in INSTANCE_FIELDS else where, empty=True)
    try:
        return Instance.model_validate(values)
    except ValidationError as error:
        raise InvalidInput(f"{where}: {explain_validation_error(error, show_input=False)}") from error
