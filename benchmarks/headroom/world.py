"""A small world in one process: a sample's questions with the stand-in teacher's rewrites, and its search engine.

The parts are those of a run (sample, stand-in teacher, index, local reranker, student's prompt), without its servers.
"""

from collections.abc import Sequence
from functools import cached_property, lru_cache
from pathlib import Path
from typing import NamedTuple

from components.evaluation.rewriter.stage import read_slices
from pipelines.config import load_config
from qinglan.prompts import Message, need_messages, student_messages, teacher_messages
from qinglan.questions import Columns, read_questions
from qinglan.rag.index import Index, build_index
from qinglan.reward.anchored_v2 import retrieval_quality
from qinglan.reward.episode import Hit, RetrievalResult
from qinglan.rows import Question
from serving.rag.lexical_reranker import DEFAULT_RERANKER, LexicalReranker
from standins.samples import write_sample
from standins.samples.sample_writer import KNOWLEDGE_BASE, QUESTIONS, SLICES
from standins.teacher.extractive_backend import ExtractiveBackend
from standins.teacher.question_parser import QuestionParser

SEED, CONVERSATIONS, DEPTH = 200, 480, 10


class Row(NamedTuple):
    """A question with the teacher's rewrite of it."""

    id: str
    conversation: str
    split: str
    kinds: Sequence[str]
    prompt: list[Message]
    gold: tuple[str, ...]
    teacher: str
    accepted: bool
    """The rewrite's first passage scores enough against the need for SFT to learn it."""


class World:
    """One tenant in one variant."""

    def __init__(self, tenant: str, variant: str, folder: Path) -> None:
        self.tenant, self.folder = tenant, folder
        if not (folder / SLICES).exists():
            write_sample(tenant, folder, CONVERSATIONS, SEED, variant)
        self.index = Index.open(build_index(folder / KNOWLEDGE_BASE, folder / "index", tenant))
        self.ids = lru_cache(None)(self._ids)

    @cached_property
    def questions(self) -> list[Question]:
        rows = read_questions(self.folder / QUESTIONS, Columns(), self.tenant)
        return [row for row in rows if isinstance(row, Question)]

    @cached_property
    def rows(self) -> list[Row]:
        kinds = read_slices(self.folder / SLICES)
        teacher = ExtractiveBackend({self.tenant: QuestionParser.load(self.folder / KNOWLEDGE_BASE)})
        reranker = LexicalReranker(self.index, DEFAULT_RERANKER)
        threshold = load_config(self.tenant, "demo").validate_.quality_threshold
        return [self._row(row, kinds[row.id], teacher, reranker, threshold) for row in self.questions]

    def _row(
        self, question: Question, kinds: Sequence[str], teacher: ExtractiveBackend, reranker: LexicalReranker,
        threshold: float,
    ) -> Row:  # fmt: skip
        rewrite, need = (
            str(
                teacher.answer(
                    self.tenant,
                    [{"role": message["role"], "content": message["content"]} for message in messages],
                    None,
                )
            )
            for messages in (teacher_messages(question), need_messages(question))
        )
        numbers = [hit.number for hit in self.index.search(rewrite, DEPTH)]
        accepted = bool(numbers) and reranker.scores(need, numbers)[0] >= threshold
        return Row(
            question.id, question.conversation_id, str(question.split), kinds, student_messages(question),
            question.gold, rewrite, accepted,
        )  # fmt: skip

    def split(self, name: str) -> list[Row]:
        return [row for row in self.rows if row.split == name]

    def _ids(self, query: str) -> tuple[str, ...]:
        """Passages of a query; an empty one finds nothing."""
        hits = self.index.search(query, DEPTH) if query.strip() else []
        return tuple(self.index.passage(hit.number).id for hit in hits)

    def first(self, query: str, row: Row) -> float:
        """1 where a gold passage stands first."""
        ids = self.ids(query)
        return float(bool(ids) and ids[0] in row.gold)

    def reward(self, query: str, row: Row) -> float:
        """The retrieval part of the project's reward; what is no rewrite costs as much as the best earns."""
        if not query.strip():
            return -1.0
        return retrieval_quality(RetrievalResult(tuple(Hit(passage, 0.0) for passage in self.ids(query))), row.gold)
