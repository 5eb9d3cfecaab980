"""Interface between the stand-in's server and the backends that write its answers."""

from dataclasses import dataclass
from typing import Any, Protocol


@dataclass(frozen=True)
class Refusal:
    """Answer of a model that declines. The caller gets it as `message.refusal`, and it is billed like an answer."""

    text: str
    finish: str = "stop"
    """Finish reason; `content_filter` if a filter declined instead of the model, and the message is empty."""


class CompletionBackend(Protocol):
    """Backend that writes answers. It runs on the server's event loop, so it must answer in about a millisecond."""

    @property
    def models(self) -> tuple[str, ...]:
        """Names of the backend's models. A request for another model gets status 404 with this list."""

    def answer(
        self, model: str, messages: list[dict[str, Any]], response_format: dict[str, Any] | None
    ) -> str | Refusal:
        """Write the text of a completion, or refuse. The same request always gets the same answer."""
