"""Further models of the stand-in that are worse, decline more or think aloud: teachers that differ by a known amount.

What befalls a question depends on the question and the model's seed alone, so that every run is the same.
"""

import hashlib
from collections.abc import Mapping
from typing import Any

from standins.teacher.asked import Asked, read_prompt
from standins.teacher.brain import Brain, Refusal
from standins.teacher.config import Variant

DECLINES = "抱歉，我不能改写这个问题。"
FILTERED = Refusal("", "content_filter")
DECLINATIONS: dict[str, str | Refusal] = {"field": Refusal(DECLINES), "words": DECLINES, "filter": FILTERED}
THOUGHT = "<think>\n用户问的是：{question}\n</think>\n\n"


class VariantBrain:
    """Models by name, each before the model of its tenant."""

    def __init__(self, brain: Brain, variants: Mapping[str, Variant]) -> None:
        self._brain, self._variants = brain, variants

    @property
    def models(self) -> tuple[str, ...]:
        return tuple(self._variants)

    def answer(
        self, model: str, messages: list[dict[str, Any]], response_format: dict[str, Any] | None
    ) -> str | Refusal:
        variant, asked = self._variants[model], read_prompt(messages, response_format)
        best = self._brain.answer(variant.tenant, messages, response_format)
        if asked is None or asked.kind != "rewrite":
            return best
        said = rewritten(variant, asked, best)
        return (
            f"{THOUGHT.format(question=asked.question)}{said}" if variant.thinks and isinstance(said, str) else said
        )


def rewritten(variant: Variant, asked: Asked, best: str | Refusal) -> str | Refusal:
    """The best rewrite, the question as it was, or a refusal: as the question's luck is with this model."""
    if luck(variant.seed, "refuses", asked) < variant.refuses:
        return DECLINATIONS[variant.refusal]
    return best if luck(variant.seed, "skill", asked) < variant.skill else asked.question.strip()


def luck(seed: int, what: str, asked: Asked) -> float:
    """In [0, 1)."""
    text = "\x1f".join((str(seed), what, asked.question, asked.history))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") / 2**64
