"""What a reward is computed from: plain data, gathered before any of it is judged."""

from typing import Any, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, field_validator

from qinglan.rag.contract import RagData

LONGEST_HEADING = 30
"""A passage without a title is headed by its first sentence, if that is no longer."""


class Prompt(BaseModel):
    """What the reward needs of a training row; what else its extra_info holds is left alone."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    id: str = Field(min_length=1)
    tenant_id: str
    split: str = "train"
    question: str = Field(min_length=1)
    user_profile: str = ""
    history_summary: str = ""
    need: str = Field(min_length=1)
    gold: tuple[str, ...] = ()
    snapshot: str = ""
    """Digest of the knowledge base that the row was validated on."""

    teacher_rewrite: str = Field(min_length=1)

    @field_validator("gold", mode="before")
    @classmethod
    def _listed(cls, value: Any) -> Any:
        """A parquet list comes as None, a list or an array."""
        return () if value is None else tuple(value)

    @property
    def context(self) -> str:
        """All that the conversation says."""
        return "\n".join((self.question, self.history_summary, self.user_profile, self.need))


class Hit(NamedTuple):
    """A retrieved passage."""

    id: str
    score: float
    title: str = ""
    content: str = ""

    @property
    def heading(self) -> str:
        """What the passage is called, in the house's words."""
        first = self.content.split("。", 1)[0]
        return self.title or (first if len(first) <= LONGEST_HEADING else "")


class RetrievalResult(NamedTuple):
    """What one query retrieved, in production's order."""

    hits: tuple[Hit, ...] = ()
    scored_against: Literal["need", "query"] = "need"

    @property
    def scores(self) -> list[float]:
        return [hit.score for hit in self.hits]

    @property
    def top1(self) -> float:
        return self.hits[0].score if self.hits else 0.0

    def ranks(self, gold: tuple[str, ...]) -> list[int]:
        """Where the gold passages stand, 1 for the first."""
        return [rank for rank, hit in enumerate(self.hits, 1) if hit.id in gold]


EMPTY_RETRIEVAL = RetrievalResult()


class JudgeScores(NamedTuple):
    """The judge's scores in [0, 1], or what stands in for them."""

    student: float
    teacher: float
    judged: bool
    """Whether the judge gave them; else they are imputed."""

    failed: bool = False
    """The judge was asked and gave nothing usable."""


class Episode(NamedTuple):
    """One rollout beside what it competes with."""

    prompt: Prompt
    rewrite: str
    student: RetrievalResult
    teacher: RetrievalResult
    plain: RetrievalResult
    judged: JudgeScores
    style: float = 0.0


def read_retrieval_result(data: RagData) -> RetrievalResult:
    """What we keep of an answer of the RAG service."""
    hits = (
        Hit(item.id, item.reranker_score, str(item.metadata.get("title", "")), item.content) for item in data.recall
    )
    return RetrievalResult(tuple(hits), data.scored_against)
