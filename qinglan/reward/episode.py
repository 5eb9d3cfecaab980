"""Data that a reward is computed from: prompts, retrievals and judge scores."""

from typing import Any, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, field_validator

from qinglan.errors import DataError
from qinglan.rag.contract import RagData, RecalledPassage, contradicts_snapshot
from qinglan.rag.retrieval import RetrievalConfig, known_query_score
from qinglan.rows import rows
from qinglan.rows.labels import Label, relevant_ids

ScoredAgainst = Literal["need", "query"]

LONGEST_HEADING = 30
"""Largest number of characters of a first sentence that serves as heading of a passage without a title."""


class Prompt(BaseModel):
    """Fields of a training row that judge and penalties need; other fields of the row's `extra_info` are ignored."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    id: str = Field(min_length=1)
    tenant_id: str
    split: str = "train"
    question: str = Field(min_length=1)
    user_profile: str = ""
    history_summary: str = ""
    need: str = Field(min_length=1)
    gold: tuple[str, ...] = ()
    labels: tuple[Label, ...] = ()
    """Judged passages of a row without gold."""

    snapshot: str = ""
    """Digest of the knowledge base that the row was validated on."""

    teacher_rewrite: str = Field(min_length=1)

    @field_validator("gold", "labels", mode="before")
    @classmethod
    def _listed(cls, value: Any) -> Any:
        return _as_tuple(value)

    @property
    def relevant(self) -> tuple[str, ...]:
        """Return the ids of the gold passages or, if there are none, of the passages labelled relevant."""
        return relevant_ids(self.gold, self.labels)

    @property
    def context(self) -> str:
        """Return the text of the conversation: question, history, profile and need."""
        return "\n".join((self.question, self.history_summary, self.user_profile, self.need))


class TrainingPrompt(Prompt):
    """Prompt with the retrievals that validation stored for the teacher's rewrite and for the plain question."""

    teacher_retrieval: rows.Retrieval
    plain_retrieval: rows.Retrieval
    scored_against: ScoredAgainst
    retrieved_with: RetrievalConfig
    reranker: str = ""
    """Digest of the reranker that scored the passages; empty if the service does not name it."""

    @field_validator("teacher_retrieval", "plain_retrieval", mode="before")
    @classmethod
    def _listed_hits(cls, value: Any) -> Any:
        return value | {"hits": _as_tuple(value.get("hits"))} if isinstance(value, dict) else value


class Hit(NamedTuple):
    """A retrieved passage."""

    id: str
    score: float
    title: str = ""
    content: str = ""

    @property
    def heading(self) -> str:
        """Return the passage's title or, if it has none, its first sentence if that is short; else empty."""
        first = self.content.split("。", 1)[0]
        return self.title or (first if len(first) <= LONGEST_HEADING else "")


class RetrievalResult(NamedTuple):
    """Passages that one query retrieved, in the order in which the RAG service returns them."""

    hits: tuple[Hit, ...] = ()
    scored_against: ScoredAgainst = "need"

    @property
    def scores(self) -> list[float]:
        return [hit.score for hit in self.hits]

    @property
    def top1(self) -> float:
        return self.hits[0].score if self.hits else 0.0

    def ranks(self, gold: tuple[str, ...]) -> list[int]:
        """Return the ranks of the gold passages that were retrieved; the first passage has rank 1."""
        return [rank for rank, hit in enumerate(self.hits, 1) if hit.id in gold]


EMPTY_RETRIEVAL = RetrievalResult()


class JudgeScores(NamedTuple):
    """Scores in [0, 1] of the student's and the teacher's rewrite, given by the judge or imputed."""

    student: float
    teacher: float
    judged: bool
    """True if the judge gave the scores, false if they are imputed."""

    failed: bool = False
    """True if the judge was asked and gave no usable answer."""


class Episode(NamedTuple):
    """One rewrite of a prompt, with the retrievals and scores from which its reward is computed."""

    prompt: Prompt
    rewrite: str
    student: RetrievalResult
    teacher: RetrievalResult
    plain: RetrievalResult
    judged: JudgeScores = JudgeScores(0.0, 0.0, judged=False)
    style: float = 0.0


def _as_tuple(value: Any) -> tuple[Any, ...]:
    """Convert a parquet list, which arrives as None, a list or an array."""
    return () if value is None else tuple(value)


def read_retrieval_result(data: RagData, by_query: bool) -> RetrievalResult:
    """Read an answer of the RAG service. With `by_query`, a hit's score is its score against the query."""
    hits = tuple(
        Hit(item.id, _score(item, by_query), str(item.metadata.get("title", "")), item.content)
        for item in data.recall
    )
    return RetrievalResult(hits, "query" if by_query else data.scored_against)


def validated_results(prompt: TrainingPrompt, by_query: bool) -> list[RetrievalResult]:
    """Return the stored retrievals of the teacher's rewrite and of the plain question, in this order."""
    return [
        RetrievalResult(
            tuple(Hit(item.id, _score(item, by_query)) for item in retrieval.hits),
            "query" if by_query else prompt.scored_against,
        )
        for retrieval in (prompt.teacher_retrieval, prompt.plain_retrieval)
    ]


def _score(item: RecalledPassage | rows.Hit, by_query: bool) -> float:
    return known_query_score(item.query_score) if by_query else item.reranker_score


def refuse_other_retrieval(prompt: TrainingPrompt, config: RetrievalConfig) -> None:
    """Raise a DataError if a row was validated with other retrieval settings, since results could not be compared."""
    if prompt.retrieved_with != config:
        raise DataError(
            f"row {prompt.id}: was validated with retrieval ({prompt.retrieved_with}), and this training retrieves "
            f"with ({config}). Set `retrieval` as it was, or validate and convert again."
        )


def refuse_other_service(prompt: TrainingPrompt, data: RagData) -> None:
    """Raise a DataError if the RAG service uses another knowledge base or reranker than in the row's validation."""
    for kind, answered, validated in (
        ("knowledge base", data.snapshot, prompt.snapshot),
        ("reranker", data.reranker_digest, prompt.reranker),
    ):
        if contradicts_snapshot(answered, validated):
            raise DataError(
                f"row {prompt.id}: the RAG service answers from {kind} {answered[:12]}, the row was validated on "
                f"{validated[:12]}. Serve that {kind}, or validate and convert again."
            )
