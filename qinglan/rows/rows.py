"""Types of a row after each stage of the data line. Each stage adds fields and removes none."""

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
    """Id, unique in the run: taken from the sheet, else made from the row's number."""

    tenant_id: Name
    conversation_id: str
    """Id that the rows of one conversation share. A row without one in the sheet is a separate conversation."""

    question: str = Field(min_length=1)
    user_profile: str = ""
    history_summary: str = ""
    need: str = ""
    """The user's need, in words that stand alone. Passages are scored against it; it is never a rewrite."""

    gold: tuple[str, ...] = ()
    """Ids of the passages that answer the question, if people labelled them."""

    split: Split | None = None
    """Split that the sheet names; if it is None, the convert stage chooses one."""


class QuestionWithNeed(Question):
    """A question whose need is known, so that several rewrites of it can be scored."""

    need: str = Field(min_length=1)
    snapshot: str = ""
    """Digest of the knowledge base that must answer the question; if empty, any knowledge base may answer."""


class Rewrite(Question):
    """A question with the teacher's rewrite."""

    rewritten_query: str = Field(min_length=1)
    teacher: str
    """Name of the model that wrote the rewrite."""

    call: str
    """Key of the paid call in the journal."""


class QuarantinedRow(Config):
    """A row that was set aside: its place in the input, the reason, and the answer that could not be used. No row is
    dropped silently."""

    id: str
    tenant_id: str
    where: str
    """Place of the row: the file and the number of the row or line, or the row's id."""

    stage: str
    reason: str
    """Short word to count by: empty, formula, refused, truncated ..."""

    detail: str
    question: str = ""
    raw: str = ""


def quarantine_row(row: Question, stage: str, error: RowError) -> QuarantinedRow:
    """Set a row aside, with the RowError of its call as the reason."""
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
    """Passages that one query retrieved, in the order in which production would show them."""

    query: str
    hits: tuple[Hit, ...]
    """All retrieved passages. The other fields are about the passages that production shows."""

    top1_score: Fraction
    """Score of the first passage shown; 0 if none is shown. It is the `top1_score` of the original plan."""

    count: int
    gold_rank: int | None = None
    """Rank of the first gold passage, counted from 1; None if no gold passage is shown or known."""

    @property
    def own_score(self) -> float | None:
        """Score of the first passage against the query itself; None if it was not sent, or nothing was retrieved."""
        return self.hits[0].query_score if self.hits else None


def to_retrieval(query: str, data: RagData, gold: tuple[str, ...], config: RetrievalConfig) -> Retrieval:
    """Extract the part of an answer that is stored: every hit with its scores, and the rank of the first gold passage
    shown."""
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
    """A rewrite with the retrievals of the plain question and of the rewrite, and the decision to train on it."""

    need: str = Field(min_length=1)
    need_source: Literal["sheet", "judge", "teacher"]
    """Source of the need. It is `teacher` if the teacher wrote the question from a passage."""

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
