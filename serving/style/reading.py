"""What is asked, as texts in the training form; what cannot be answered is refused without repeating it."""

from typing import Any

from kserve.errors import InvalidInput

from qinglan.style.labels import training_form

MOST_INSTANCES = 256
FORMS = ({"text"}, {"question", "answer"})


def read_instances(payload: Any) -> list[str]:
    """V1: {"instances": [...]}."""
    given = payload.get("instances") if isinstance(payload, dict) else None
    if not isinstance(given, list):
        raise InvalidInput('Send application/json: {"instances": [{"text": "..."}]}.')
    bounded(len(given))
    return [read_instance(values, f"instances[{number}]") for number, values in enumerate(given)]


def read_instance(values: Any, where: str) -> str:
    """A text as it is, or question and answer in the training form; the answer alone may be empty."""
    if not isinstance(values, dict) or set(values) not in FORMS:
        raise InvalidInput(f'{where}: give {{"text"}}, or {{"question", "answer"}}, and nothing else.')
    for field, value in values.items():
        check_text(value, f"{where}.{field}", empty=field == "answer")
    return values["text"] if "text" in values else training_form(values["question"], values["answer"])


def check_text(value: Any, where: str, empty: bool = False) -> None:
    if not isinstance(value, str):
        raise InvalidInput(f"{where}: not a text.")
    if not value.strip() and not empty:
        raise InvalidInput(f"{where}: empty.")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise InvalidInput(f"{where}: half a character (an unpaired surrogate).") from None


def bounded(texts: int) -> None:
    if not 0 < texts <= MOST_INSTANCES:
        raise InvalidInput(f"{texts} texts: send 1 to {MOST_INSTANCES} at once.")
