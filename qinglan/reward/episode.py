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
"""Longest first sentence that serves as the heading of a passage without a title."""


class Prompt(BaseModel):
    """The part of a training row that judge and penalties need; other fields of its extra_info are ignored."""

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
        """Ids of the passages that answer the question: the gold passages, else the passages labelled relevant."""
        return relevant_ids(self.gold, self.labels)

    @property
    def context(self) -> str:
        """Text of the conversation: question, history, profile and need."""
        return "\n".join((self.question, self.history_summary, self.user_profile, self.need))


class TrainingPrompt(Prompt):
    """A prompt with the retrievals, made in validation, of its teacher's rewrite and of its plain question."""

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
        """The passage's title; else its first sentence, if that is short."""
        first = self.content.split("。", 1)[0]
        return self.title or (first if len(first) <= LONGEST_HEADING else "")


class RetrievalResult(NamedTuple):
    """Passages that one query retrieved, in production's order."""

    hits: tuple[Hit, ...] = ()
    scored_against: ScoredAgainst = "need"

    @property
    def scores(self) -> list[float]:
        return [hit.score for hit in self.hits]

    @property
    def top1(self) -> float:
        return self.hits[0].score if self.hits else 0.0

    def ranks(self, gold: tuple[str, ...]) -> list[int]:
        """Ranks of the gold passages that were retrieved; the first passage has rank 1."""
        return [rank for rank, hit in enumerate(self.hits, 1) if hit.id in gold]


EMPTY_RETRIEVAL = RetrievalResult()


class JudgeScores(NamedTuple):
    """The judge's scores in [0, 1], or imputed ones."""

    student: float
    teacher: float
    judged: bool
    """True if the judge gave the scores, false if they are imputed."""

    failed: bool = False
    """True if the judge was asked and gave no usable answer."""


class Episode(NamedTuple):
    """One rollout with the retrievals that it is compared with."""

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
    """Read an answer of the RAG service; with `by_query` the hits have their scores against the query."""
    hits = tuple(
        Hit(item.id, _score(item, by_query), str(item.metadata.get("title", "")), item.content)
        for item in data.recall
    )
    return RetrievalResult(hits, "query" if by_query else data.scored_against)


def validated_results(prompt: TrainingPrompt, by_query: bool) -> list[RetrievalResult]:
    """Retrievals of the teacher's rewrite and of the plain question, in this order, as validation stored them."""
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
    """Raise a DataError if the row was validated with other retrieval settings: results could not be compared."""
    if prompt.retrieved_with != config:
        raise DataError(
            f"row {prompt.id}: was validated with retrieval ({prompt.retrieved_with}), and this training retrieves "
            f"with ({config}). Set `retrieval` as it was, or validate and convert again."
        )


def refuse_other_service(prompt: TrainingPrompt, data: RagData) -> None:
    """Raise a DataError if an answer comes from another knowledge base or reranker than in validation."""
    for kind, answered, validated in (
        ("knowledge base", data.snapshot, prompt.snapshot),
        ("reranker", data.reranker_digest, prompt.reranker),
    ):
        if contradicts_snapshot(answered, validated):
            raise DataError(
                f"row {prompt.id}: the RAG service answers from {kind} {answered[:12]}, the row was validated on "
                f"{validated[:12]}. Serve that {kind}, or validate and convert again."
            )
