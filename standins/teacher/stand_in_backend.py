"""All models of the stand-in: each tenant's teacher and its examiner, and additional models of known quality.

Every model also judges relevance. An additional model leaves some questions unchanged or declines them, and may show
its thinking. A hash of question, history and the model's seed selects these questions, so every run is the same.
"""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from qinglan.errors import ConfigError
from qinglan.rag.knowledge_base import read_knowledge_base
from standins.teacher.backend import Refusal
from standins.teacher.config import Variant
from standins.teacher.extractive_backend import answer_task
from standins.teacher.prompt_parser import PromptTask, read_prompt
from standins.teacher.question_parser import QuestionParser
from standins.teacher.relevance_judge import ERROR_RATES, ErrorRates, RelevanceJudge, read_vocabulary
from standins.teacher.similarity_judge import SUFFIX, SimilarityJudge

DECLINES = "抱歉，我不能改写这个问题。"
REFUSAL_ANSWERS: dict[str, str | Refusal] = {
    "field": Refusal(DECLINES),
    "words": DECLINES,
    "filter": Refusal("", "content_filter"),
}
EXAMINER_DECLINES = Refusal("这里只评价改写；收到的不是评价的请求。")
THINKING_TEMPLATE = "<think>\n用户问的是：{question}\n</think>\n\n"


class StandInBackend:
    def __init__(
        self,
        knowledge_bases: Mapping[str, Path],
        vocabularies: Mapping[str, Path] | None = None,
        variants: Mapping[str, Variant] | None = None,
        rates: ErrorRates = ERROR_RATES,
    ) -> None:
        self._variants = variants or {}
        if unknown := {variant.tenant for variant in self._variants.values()} - knowledge_bases.keys():
            raise ConfigError(f"--variant: no --kb for tenant {', '.join(sorted(unknown))}. Give it one.")
        self._readers = {tenant: QuestionParser.load(path) for tenant, path in knowledge_bases.items()}
        self._examiners = {
            f"{tenant}{SUFFIX}": SimilarityJudge(list(read_knowledge_base(path)))
            for tenant, path in knowledge_bases.items()
        }
        self._tenants = {model: tenant for tenant in knowledge_bases for model in (tenant, f"{tenant}{SUFFIX}")}
        self._tenants |= {model: variant.tenant for model, variant in self._variants.items()}
        words = {tenant: read_vocabulary(path) for tenant, path in (vocabularies or {}).items()}
        self._judges = {
            model: RelevanceJudge(model, self._readers[tenant], words.get(tenant, {}), rates)
            for model, tenant in self._tenants.items()
        }

    @property
    def models(self) -> tuple[str, ...]:
        return tuple(self._tenants)

    def answer(
        self, model: str, messages: list[dict[str, Any]], response_format: dict[str, Any] | None
    ) -> str | Refusal:
        task = read_prompt(messages, response_format)
        if task is not None and task.kind in ("label", "choice"):
            return self._judges[model].answer(task)
        if examiner := self._examiners.get(model):
            if task is None or task.kind != "judge":
                return EXAMINER_DECLINES
            return json.dumps(examiner.judge(task), ensure_ascii=False)
        answer = answer_task(self._readers[self._tenants[model]], task)
        if model not in self._variants or task is None or task.kind != "rewrite":
            return answer
        return vary_rewrite(self._variants[model], task, answer)


def vary_rewrite(variant: Variant, task: PromptTask, best: str | Refusal) -> str | Refusal:
    """Choose the best rewrite, the unchanged question or a refusal, by a hash of the question."""
    rewrite = best if seeded_fraction(variant.seed, "skill", task) < variant.skill else task.question.strip()
    if seeded_fraction(variant.seed, "refuses", task) < variant.refuses:
        rewrite = REFUSAL_ANSWERS[variant.refusal]
    if variant.thinks and isinstance(rewrite, str):
        return THINKING_TEMPLATE.format(question=task.question) + rewrite
    return rewrite


def seeded_fraction(seed: int, what: str, task: PromptTask) -> float:
    """Return a pseudorandom number in [0, 1) from a hash of seed, `what`, question and history."""
    text = "\x1f".join((str(seed), what, task.question, task.history))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") / 2**64
