"""Contract of the stand-in: which parts of ours a company's own service knows, and how its answers look."""

from typing import Literal

from pydantic import Field

from qinglan.config import Config, Fraction
from qinglan.rag.contract import RAG_PATH


class Behaviour(Config):
    path: str = Field(default=RAG_PATH, pattern=r"^/")
    """Path of its endpoint."""

    token: str = ""
    """Bearer token that each request must bring; without it none is needed."""

    layout: Literal["plan", "flat"] = "plan"
    """`plan`: data.recall[].reranker_score. `flat`, as a service that knows nothing of the plan:
    {"status": 0, "result": {"docs": [{"doc_id", "text", "score"}]}} for {"q", "size"}."""

    scores: Literal["logit", "probability"] = "logit"
    """Scale of its scores."""

    fields: Literal["all", "score"] = "all"
    """`score`: a passage has nothing but its score, the one field that the plan reads."""

    rewrites: bool = True
    """It searches `rewritten_query`; else it rewrites each question itself, and says what it searched."""

    needs: bool = False
    """It scores against `need`, and says so."""

    restless: Fraction = 0.0
    """Share of requests that are answered with the passages in another order."""

    latency: float = Field(default=0.0, ge=0)
    """Seconds of an answer."""
