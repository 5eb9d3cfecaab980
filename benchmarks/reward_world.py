"""A sample tenant in one process, and fixed kinds of text to reward in it: honest ones, and ways to cheat.

with opened("fivedoctors", conversations=200, seed=100) as world:
    terms = world.score(world.cases("train")[0], "item_only", RewardConfig(mode="seed_v1"))
"""

import asyncio
import json
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from qinglan.prompts import JUDGE_FORMAT, judge_messages, need_messages, teacher_messages
from qinglan.rag.contract import RecalledPassage
from qinglan.rag.lexical.index import Index, build_index
from qinglan.reward.config import RewardConfig
from qinglan.reward.episode import Episode, Hit, JudgeScores, Prompt, RetrievalResult
from qinglan.reward.judge import MAX_JUDGE_SCORE
from qinglan.reward.terms import floor_checks
from qinglan.reward.terms.reward_terms import compute_reward_terms
from qinglan.rows.questions import Columns, read_questions
from qinglan.rows.rows import Question, Split
from serving.rag.engine import TantivyEngine
from serving.rag.rerank.lexical_reranker import DEFAULT_RERANKER
from serving.rag.retrieve import retrieve
from standins.samples import write_sample
from standins.samples.sample_writer import KNOWLEDGE_BASE, QUESTIONS, SLICES
from standins.samples.tenant_content import load_tenant_content
from standins.teacher.extractive_backend import ExtractiveBackend, load_extractive_backend


class Case(NamedTuple):
    """A training row, and what only the sample's maker knows of it."""

    prompt: Prompt
    item: str
    term: str
    other_term: str
    passage: str
    """Passage that the teacher's rewrite finds first."""


KINDS: dict[str, Callable[[Case], str]] = {
    "good": lambda case: f"{case.item} {case.term}",
    "teacher": lambda case: case.prompt.teacher_rewrite,
    "question": lambda case: case.prompt.question,
    "item_only": lambda case: case.item,
    "wrong_term": lambda case: f"{case.item} {case.other_term}",
    "constant_title": lambda case: CONSTANT,
    "copied_passage": lambda case: case.passage,
    "history_dump": lambda case: case.prompt.history_summary or case.prompt.user_profile,
    "repeated": lambda case: " ".join([f"{case.item} {case.term}"] * 4),
    "invented": lambda case: f"{case.item} {case.term} 纳豆激酶冲剂500毫克",
    "markup": lambda case: f"<think>用户想问{case.term}</think>{case.item} {case.term}",
    "empty": lambda case: "",
}
CONSTANT = "企业品牌故事"


class World:
    """Knowledge base, stand-in judge and rows, each loaded once."""

    def __init__(
        self, folder: Path, tenant: str, brain: ExtractiveBackend, engine: TantivyEngine,
        loop: asyncio.AbstractEventLoop,
    ) -> None:  # fmt: skip
        self.tenant = tenant
        self._folder, self._brain, self._engine, self._loop = folder, brain, engine, loop
        self._hits, self._rated = lru_cache(None)(self._find), lru_cache(None)(self._rate)

    def cases(self, split: Split, count: int | None = None) -> list[Case]:
        """Rows of a split, in the order of the sheet."""
        slices = {row["id"]: row for row in map(orjson.loads, (self._folder / SLICES).read_bytes().splitlines())}
        rows = read_questions(self._folder / QUESTIONS, Columns(), self.tenant)
        chosen = [row for row in rows if isinstance(row, Question) and row.split == split][:count]
        return [self._case(row, slices[row.id]) for row in chosen]

    def score(self, case: Case, kind: str, config: RewardConfig) -> dict[str, float]:
        """Every term of the reward of a kind of text, judged every time."""
        return self.reward(case.prompt, KINDS[kind](case), config)

    def reward(self, prompt: Prompt, text: str, config: RewardConfig) -> dict[str, float]:
        rewrite = floor_checks.strip_turn_end(text)
        need = prompt.need if config.mode == "anchored_v2" else None
        student, teacher, plain = (
            self._hits(query, need) for query in (rewrite, prompt.teacher_rewrite, prompt.question)
        )
        judged = JudgeScores(self._rated(prompt, rewrite), self._rated(prompt, prompt.teacher_rewrite), judged=True)
        return compute_reward_terms(Episode(prompt, rewrite, student, teacher, plain, judged), config)

    def _case(self, row: Question, slice: dict[str, Any]) -> Case:
        need = self._answer(need_messages(row))
        teacher = self._answer(teacher_messages(row))
        prompt = Prompt.model_validate({**row.model_dump(), "need": need, "teacher_rewrite": teacher})
        hits = self._hits(teacher, None).hits
        terms = list(load_tenant_content(self.tenant).aspects)
        other = terms[(terms.index(slice["aspect"]) + 7) % len(terms)]
        return Case(prompt, slice["item"], slice["aspect"], other, hits[0].content if hits else "")

    def _find(self, query: str, need: str | None) -> RetrievalResult:
        if not query.strip():
            return RetrievalResult((), "need" if need else "query")
        recall = self._loop.run_until_complete(retrieve(self._engine, query, 10, 0.0, need)).recall
        return RetrievalResult(tuple(map(_hit, recall)), "need" if need else "query")

    def _rate(self, prompt: Prompt, rewrite: str) -> float:
        return (
            float(json.loads(self._answer(judge_messages(prompt, rewrite), JUDGE_FORMAT))["综合得分"])
            / MAX_JUDGE_SCORE
        )

    def _answer(self, messages: Any, shape: dict[str, Any] | None = None) -> str:
        return str(self._brain.answer(self.tenant, messages, shape))


@contextmanager
def opened(tenant: str, conversations: int, seed: int) -> Iterator[World]:
    """A sample written, indexed and read, for as long as the block lasts."""
    with tempfile.TemporaryDirectory(prefix="qinglan-reward-") as name:
        folder = Path(name)
        write_sample(tenant, folder, conversations, seed)
        index = Index.open(build_index(folder / KNOWLEDGE_BASE, folder / "index", tenant))
        brain = load_extractive_backend({tenant: folder / KNOWLEDGE_BASE})
        with closing(asyncio.new_event_loop()) as loop:  # one for all: a search takes little longer than making one
            yield World(folder, tenant, brain, TantivyEngine(index, DEFAULT_RERANKER), loop)


def _hit(item: RecalledPassage) -> Hit:
    return Hit(item.id, item.reranker_score, str(item.metadata.get("title", "")), item.content)
