"""The RAG service's contract, shared by the service, its clients and the gateway.

POST /api/chat/general_rag    RagRequest -> RagAnswer
GET  /api/knowledge_bases     -> {"knowledge_bases": [KnowledgeBase]}
"""

from typing import Annotated, Any, Literal

import orjson
from pydantic import Field

from qinglan.config import Config, Fraction, Name
from qinglan.errors import DataError

QueryText = Annotated[str, Field(min_length=1, max_length=4000, pattern=r"\S")]

RAG_PATH = "/api/chat/general_rag"
KNOWLEDGE_BASES_PATH = "/api/knowledge_bases"


class Passage(Config):
    """One line of a knowledge base."""

    id: str = Field(min_length=1)
    title: str = ""
    content: str = Field(min_length=1)
    metadata: dict[str, Any] = {}


class KnowledgeBase(Config):
    tenant_id: Name
    kb_name: Name
    snapshot: str
    """Digest of the knowledge base's bytes."""

    passages: int
    reranker: str = ""
    """Digest of the reranker that scores the passages. A cache needs it in its key, or it would mix the scores of two
    rerankers."""


class RagRequest(Config):
    query: QueryText
    """The user's question as typed."""

    rewritten_query: QueryText | None = None
    """Query to search instead of `query`; without it the service asks the deployed rewriter."""

    tenant_id: Name
    kb_name: Name = "default"
    top_k: int = Field(default=5, ge=1, le=100)
    score_threshold: Fraction = 0.5
    """Lowest score of a hit; lower hits are cut. It applies to the score against the searched query, never to the
    score against `need`. Our service cuts nothing if the request omits the threshold and the tenant's scores are not
    calibrated."""

    need: QueryText | None = None
    """Text that `reranker_score` is measured against. It changes neither the order of the passages nor which hits are
    cut."""

    user_profile: str = Field(default="", max_length=4000)
    history_summary: str = Field(default="", max_length=20000)
    """Context for the deployed rewriter; unused if the request has a `rewritten_query`."""


class RecalledPassage(Config):
    """A retrieved passage, with the plan's field names."""

    id: str
    """Id in the knowledge base; empty if the service sends none. Without ids no gold passage is recognised."""

    content: str = ""
    reranker_score: Fraction
    query_score: Fraction | None = None
    """Score against the searched query, to which `score_threshold` applies; None if the service does not send it."""

    metadata: dict[str, Any] = {}


class RagData(Config):
    rewritten_query: str
    """The query that was searched."""

    recall: tuple[RecalledPassage, ...]
    scored_against: Literal["need", "query"]
    rewriter: Literal["request", "model", "as asked", "fallback"]
    """Source of the searched query: the caller (`request`) or the deployed rewriter (`model`). Otherwise the question
    itself was searched, since it finds its answer (`as asked`) or the rewriter failed (`fallback`)."""

    rewriter_version: str = ""
    fallback_reason: str = ""
    snapshot: str
    reranker: Literal["local", "service"] = "local"
    """Scorer of all passages: `service` is a reranker over HTTP, `local` is the RAG service's own score."""

    reranker_digest: str = ""
    """Digest of the reranker. Scores of rerankers with different digests cannot be compared."""

    reranker_fallback_reason: str = ""
    """Reason why the configured HTTP reranker gave no scores. The answer then serves users, but not training."""


SAMPLED_SNAPSHOT = "sampled:"
"""Prefix of a digest of sampled answers, used if the service sends no digest of its knowledge base."""


def contradicts_snapshot(answered: str, expected: str) -> bool:
    """True if two digests differ. False if one is missing, or if only one is a digest of sampled answers."""
    same_kind = answered.startswith(SAMPLED_SNAPSHOT) == expected.startswith(SAMPLED_SNAPSHOT)
    return bool(answered and expected) and same_kind and answered != expected


def refuse_other_snapshot(answered: str, expected: str, row: str) -> None:
    """Raise a DataError if a row is answered from another knowledge base than it was validated on."""
    if contradicts_snapshot(answered, expected):
        raise DataError(
            f"row {row}: the RAG service answers from knowledge base {answered[:12]}, the row was validated on "
            f"{expected[:12]}. Serve that one, or validate again."
        )


class RagAnswer(Config):
    code: int = 200
    msg: str = "success"
    data: RagData


def read_reranker_fallback(content: bytes) -> str:
    """Read from an answer the reason why its scores are not from the configured reranker; empty if they are."""
    if b'"reranker_fallback_reason"' not in content:
        return ""
    try:
        return str(orjson.loads(content)["data"]["reranker_fallback_reason"] or "")
    except (orjson.JSONDecodeError, LookupError, TypeError):
        return ""
