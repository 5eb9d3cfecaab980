"""The interface between the stand-in's server and the backends that write its answers."""

from dataclasses import dataclass
from typing import Any, Protocol


@dataclass(frozen=True)
class Refusal:
    """The model declines; it reaches the caller as `message.refusal`, and was billed like an answer."""

    text: str
    finish: str = "stop"
    """`content_filter` if a filter declined in place of the model; the message is then empty."""


class CompletionBackend(Protocol):
    """Answers in about a millisecond; called on the server's event loop, so it must not wait."""

    @property
    def models(self) -> tuple[str, ...]:
        """Known model names; a request for another is a 404 that lists these."""
        ...

    def answer(
        self, model: str, messages: list[dict[str, Any]], response_format: dict[str, Any] | None
    ) -> str | Refusal:
        """The completion's text. The same request always gets the same answer."""
        ...


class BackendRouter:
    """Several backends; the model's name selects one."""

    def __init__(self, *backends: CompletionBackend) -> None:
        self._by_model = {model: backend for backend in backends for model in backend.models}

    @property
    def models(self) -> tuple[str, ...]:
        return tuple(self._by_model)

    def answer(
        self, model: str, messages: list[dict[str, Any]], response_format: dict[str, Any] | None
    ) -> str | Refusal:
        return self._by_model[model].answer(model, messages, response_format)
