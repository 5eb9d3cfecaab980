"""Additional models of the stand-in that rewrite worse, decline or show their thinking: teachers of known quality.

Only the question, its history and the model's seed decide what happens to a question, so every run is the same.
"""

import hashlib
from collections.abc import Mapping
from typing import Any

from standins.teacher.backend import CompletionBackend, Refusal
from standins.teacher.config import Variant
from standins.teacher.prompt_parser import PromptTask, read_prompt

DECLINES = "抱歉，我不能改写这个问题。"
FILTERED = Refusal("", "content_filter")
REFUSAL_ANSWERS: dict[str, str | Refusal] = {"field": Refusal(DECLINES), "words": DECLINES, "filter": FILTERED}
THINKING_TEMPLATE = "<think>\n用户问的是：{question}\n</think>\n\n"


class VariantBackend:
    """Backend with additional models by name, each of which changes the answers of its tenant's model."""

    def __init__(self, backend: CompletionBackend, variants: Mapping[str, Variant]) -> None:
        self._backend, self._variants = backend, variants

    @property
    def models(self) -> tuple[str, ...]:
        return tuple(self._variants)

    def answer(
        self, model: str, messages: list[dict[str, Any]], response_format: dict[str, Any] | None
    ) -> str | Refusal:
        variant, task = self._variants[model], read_prompt(messages, response_format)
        best = self._backend.answer(variant.tenant, messages, response_format)
        if task is None or task.kind != "rewrite":
            return best
        rewrite = vary_rewrite(variant, task, best)
        return (
            f"{THINKING_TEMPLATE.format(question=task.question)}{rewrite}"
            if variant.thinks and isinstance(rewrite, str)
            else rewrite
        )


def vary_rewrite(variant: Variant, task: PromptTask, best: str | Refusal) -> str | Refusal:
    """Choose the best rewrite, the unchanged question or a refusal, by a hash of the question."""
    if seeded_fraction(variant.seed, "refuses", task) < variant.refuses:
        return REFUSAL_ANSWERS[variant.refusal]
    return best if seeded_fraction(variant.seed, "skill", task) < variant.skill else task.question.strip()


def seeded_fraction(seed: int, what: str, task: PromptTask) -> float:
    """Pseudorandom number in [0, 1) from a hash of seed, `what` and task."""
    text = "\x1f".join((str(seed), what, task.question, task.history))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") / 2**64
