"""The interface of whoever writes the stand-in's answers."""

from dataclasses import dataclass
from typing import Any, Protocol


@dataclass(frozen=True)
class Refusal:
    """The model declines; it reaches the caller as `message.refusal`, and was billed like an answer."""

    text: str
    finish: str = "stop"
    """`content_filter` where a filter declined, not the model: then nothing is said at all."""


class CompletionBackend(Protocol):
    """Answers without waiting: about a millisecond of work, called on the server's own loop."""

    @property
    def models(self) -> tuple[str, ...]:
        """The names a request may carry; any other is a 404 that lists these."""
        ...

    def answer(
        self, model: str, messages: list[dict[str, Any]], response_format: dict[str, Any] | None
    ) -> str | Refusal:
        """The completion's text. The same request always gets the same answer."""
        ...


class BackendRouter:
    """Several brains under one roof; a model's name says who answers."""

    def __init__(self, *brains: CompletionBackend) -> None:
        self._by_model = {model: brain for brain in brains for model in brain.models}

    @property
    def models(self) -> tuple[str, ...]:
        return tuple(self._by_model)

    def answer(
        self, model: str, messages: list[dict[str, Any]], response_format: dict[str, Any] | None
    ) -> str | Refusal:
        return self._by_model[model].answer(model, messages, response_format)
