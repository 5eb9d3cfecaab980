"""Contract of the stand-in: the parts of ours that a company's own service knows, and the form of its answers."""

from typing import Literal

from pydantic import Field

from qinglan.config import Config, Fraction
from qinglan.rag.contract import RAG_PATH


class Behaviour(Config):
    path: str = Field(default=RAG_PATH, pattern=r"^/")
    """Path of the endpoint."""

    token: str = ""
    """Bearer token that each request must have; empty requires none."""

    layout: Literal["plan", "flat"] = "plan"
    """Form of its answers. `plan`: data.recall[].reranker_score. `flat`, of a service that does not know the plan:
    {"status": 0, "result": {"docs": [{"doc_id", "text", "score"}]}} for {"q", "size"}."""

    scores: Literal["logit", "probability"] = "logit"
    """Scale of the scores."""

    fields: Literal["all", "score"] = "all"
    """Fields of a passage. `score`: only its score, which is the only field that the plan reads."""

    rewrites: bool = True
    """Search `rewritten_query`; if false, the service rewrites each question itself and returns its rewrite."""

    needs: bool = False
    """Score passages against `need`, and say so in the answer."""

    restless: Fraction = 0.0
    """Share of requests that are answered with the passages in another order."""

    latency: float = Field(default=0.0, ge=0)
    """Seconds until an answer."""
