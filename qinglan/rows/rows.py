"""The typed truth of the data line: what a row is after each stage. Every stage adds, none takes away."""

from typing import Literal

from pydantic import Field

from qinglan.config import Config, Fraction, Name
from qinglan.errors import RowError
from qinglan.rag.contract import RagData
from qinglan.rag.retrieval import RetrievalConfig
from qinglan.rows.labels import Label

Split = Literal["train", "dev", "test"]


class Question(Config):
    """One row of the spreadsheet."""

    id: str
    """Id, unique in the run: the sheet's own, else made from the row's number."""

    tenant_id: Name
    conversation_id: str
    """Id that the turns of one conversation share; a row without one is a conversation of its own."""

    question: str = Field(min_length=1)
    user_profile: str = ""
    history_summary: str = ""
    need: str = ""
    """The user's need, standalone. Passages are scored against it; it is never a rewrite."""

    gold: tuple[str, ...] = ()
    """Ids of the passages that answer the question, if people labelled them."""

    split: Split | None = None
    """Split that the sheet gives; else the convert stage chooses one."""


class QuestionWithNeed(Question):
    """A question whose need is known, to be asked in several ways."""

    need: str = Field(min_length=1)
    snapshot: str = ""
    """Digest of the knowledge base that must answer the question; empty takes any."""


class Rewrite(Question):
    """A question with the teacher's rewrite."""

    rewritten_query: str = Field(min_length=1)
    teacher: str
    """The model that answered."""

    call: str
    """The journal's key of the paid call."""


class QuarantinedRow(Config):
    """A row that got no usable answer: its place in the input, the reason, and what came instead. No row is dropped
    silently."""

    id: str
    tenant_id: str
    where: str
    """The sheet's file and row, or the stage's input and line."""

    stage: str
    reason: str
    """Short word to count by: empty, formula, refused, truncated ..."""

    detail: str
    question: str = ""
    raw: str = ""


def quarantine_row(row: Question, stage: str, error: RowError) -> QuarantinedRow:
    """The row, set aside for the reason that its call failed."""
    return QuarantinedRow(
        id=row.id,
        tenant_id=row.tenant_id,
        where=f"row {row.id}",
        stage=stage,
        reason=error.reason,
        detail=str(error),
        question=row.question,
        raw=error.raw,
    )


class Hit(Config):
    id: str
    reranker_score: Fraction
    query_score: Fraction | None = None


class Retrieval(Config):
    """The knowledge base's answer to one query, in the order in which production would show it."""

    query: str
    hits: tuple[Hit, ...]
    """All retrieved passages; the figures below are of those that production shows."""

    top1_score: Fraction
    """The first passage's score, 0 if none is shown: the plan's top1_score."""

    count: int
    gold_rank: int | None = None
    """Rank of the gold passage, 1 for the first; None if it is not shown, or unknown."""

    @property
    def own_score(self) -> float | None:
        """The first passage's score against the query itself; None if the service sends none, or found nothing."""
        return self.hits[0].query_score if self.hits else None


def to_retrieval(query: str, data: RagData, gold: tuple[str, ...], config: RetrievalConfig) -> Retrieval:
    """The stored part of an answer: every hit with its scores, and the rank of the first gold passage shown."""
    shown = config.shown(data)
    # Ranks are counted among the shown passages only, as a user sees them.
    ranks = [rank for rank, hit in enumerate(shown, 1) if hit.id in gold]
    return Retrieval(
        query=query,
        hits=tuple(
            Hit(id=item.id, reranker_score=item.reranker_score, query_score=item.query_score) for item in data.recall
        ),
        top1_score=shown[0].reranker_score if shown else 0.0,
        count=len(shown),
        gold_rank=ranks[0] if ranks else None,
    )


class ValidatedRewrite(Rewrite):
    """A rewrite with what both queries retrieved, accepted for training or not, and why."""

    need: str = Field(min_length=1)
    need_source: Literal["sheet", "judge", "teacher"]
    """The source of the need; the teacher if it wrote the question from a passage."""

    scored_against: Literal["need", "query"]
    snapshot: str
    """Digest of the knowledge base that answered."""

    reranker: str = ""
    """Digest of the reranker that scored the passages; empty if the service does not name it."""

    retrieved_with: RetrievalConfig
    """Settings of both retrievals; the reward uses the retrievals only under the same settings."""

    plain: Retrieval
    rewritten: Retrieval
    accepted: bool
    reason: str
    """Reason why the row was not accepted; empty if it was."""

    labels: tuple[Label, ...] = ()
    """Judged passages of a row without gold; the convert stage adds them."""
