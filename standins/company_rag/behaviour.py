"""Settings of the stand-in: the parts of Qinglan's contract that it supports, and the format of its answers."""

from typing import Literal

from pydantic import Field

from qinglan.config import Config, Fraction
from qinglan.rag.contract import RAG_PATH


class Behaviour(Config):
    path: str = Field(default=RAG_PATH, pattern=r"^/")
    """Path of the endpoint."""

    token: str = ""
    """Bearer token that each request must have; if empty, none is required."""

    layout: Literal["plan", "flat"] = "plan"
    """Format of the answers. `plan` has data.recall[].reranker_score. `flat` is the format of a foreign service:
    {"status": 0, "result": {"docs": [{"doc_id", "text", "score"}]}} for requests with {"q", "size"}."""

    scores: Literal["logit", "probability"] = "logit"
    """Scale of the scores."""

    fields: Literal["all", "score"] = "all"
    """Fields of a passage in an answer; `score` is only the score, the only field that must exist."""

    rewrites: bool = True
    """True to search `rewritten_query`; if false, the service always searches and returns its own rewrite."""

    needs: bool = False
    """True to score passages against `need`, with `scored_against` in the answer."""

    restless: Fraction = 0.0
    """Share of answers whose passages are in a random order."""
