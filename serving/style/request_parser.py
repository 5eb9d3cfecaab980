"""Texts of a request, in the training form; an unusable request is refused without repeating its text."""

from typing import Any

from kserve.errors import InvalidInput

from qinglan.style.labels import format_training_text
from serving.tensors import check_text, check_text_count

FORMS = ({"text"}, {"question", "answer"})


def read_instances(payload: Any) -> list[str]:
    """V1: {"instances": [...]}."""
    instances = payload.get("instances") if isinstance(payload, dict) else None
    if not isinstance(instances, list):
        raise InvalidInput('Send application/json: {"instances": [{"text": "..."}]}.')
    check_text_count(len(instances))
    return [read_instance(values, f"instances[{number}]") for number, values in enumerate(instances)]


def read_instance(values: Any, where: str) -> str:
    """A text as it is, or question and answer in the training form; the answer alone may be empty."""
    if not isinstance(values, dict) or set(values) not in FORMS:
        raise InvalidInput(f'{where}: give {{"text"}}, or {{"question", "answer"}}, and nothing else.')
    for field, value in values.items():
        check_text(value, f"{where}.{field}", empty=field == "answer")
    return values["text"] if "text" in values else format_training_text(values["question"], values["answer"])
