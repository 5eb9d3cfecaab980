"""Address and shape of a company's RAG service: its path, headers, field names and scale of scores.

A service with the contract of docs/rag-contract.md needs none of these settings but the address.
"""

import re
from typing import Any, Self

from pydantic import Field, model_validator

from qinglan.config import Config, Name
from qinglan.http.addresses import SECRET_FIELD, secret_field
from qinglan.rag.calibration import Calibration
from qinglan.rag.contract import RAG_PATH, QueryText

ENVIRONMENT_VARIABLE = re.compile(r"\$([A-Z][A-Z0-9_]*)")
"""Reference to an environment variable in a header's value, e.g. `$RAG_TOKEN`."""


SECRET_HEADER = re.compile(r"cookie|credential|session|signature|(^|-)(key|auth)$", re.IGNORECASE)
"""Names of headers with secrets, beside those of secret fields in any settings."""

SECRET_TEXT = re.compile(r"(?i:\b(bearer|basic)\s+\S)|(?=\S*\d)\S{8,}")
"""A text that looks like a secret: behind a scheme, or a word of eight characters or more with a digit."""


def is_literal_secret(name: str, value: str) -> bool:
    """True if a header's value is a secret, or holds one beside its environment variables."""
    literal = ENVIRONMENT_VARIABLE.sub("", value)
    secret = bool(SECRET_FIELD.search(name) or SECRET_HEADER.search(name))
    if secret and literal == value:
        return True
    return bool(SECRET_TEXT.search(literal)) if secret else bool(re.match(r"(?i)(bearer|basic)\s+\S", literal))


class RequestFields(Config):
    """Path of each field of a request in the service's JSON body. Dots lead into objects; an empty path leaves the
    field out."""

    query: str = "query"
    """The user's question."""

    rewritten_query: str = Field(default="rewritten_query", min_length=1)
    """The text to search. If the service has no field for it, the path of its query, which the text then replaces."""

    tenant_id: str = "tenant_id"
    """The tenant."""

    kb_name: str = "kb_name"
    """The knowledge base."""

    top_k: str = "top_k"
    """Number of passages."""

    score_threshold: str = "score_threshold"
    """The cut, in the service's own scale of scores. A run asks for uncut answers."""

    need: str = "need"
    """The text that passages are scored against; empty if the service knows only the query."""


class AnswerFields(Config):
    """Path of each field in the service's answer. Those below `recall` begin at a passage."""

    code: str = "code"
    """Path of a status inside the answer; a missing status counts as success."""

    success_code: int | str = 200
    """Value of `code` in a good answer."""

    recall: str = Field(default="data.recall", min_length=1)
    """The list of passages, the best first."""

    rewritten_query: str = "data.rewritten_query"
    """The text that was searched, if the service says it."""

    scored_against: str = "data.scored_against"
    """`need` or `query`, if the service says it; without it scores count as scores against the query."""

    snapshot: str = "data.snapshot"
    """SHA-256 of the knowledge base, if the service says it."""

    id: str = "id"
    """Id of a passage, as in the knowledge base; gold passages are recognised by it."""

    content: str = "content"
    """Text of a passage."""

    score: str = Field(default="reranker_score", min_length=1)
    """Score of a passage."""

    query_score: str = "query_score"
    """Score against the query, if `score` is against the need."""

    metadata: str = "metadata"
    """An object with more about a passage; its `title` is shown."""


class RagService(Config):
    """Path, headers and fields of a RAG service."""

    path: str = Field(default=RAG_PATH, pattern=r"^/\S*$")
    """Path that questions are posted to."""

    headers: dict[str, str] = {}
    """Headers of each request. `$NAME` is the environment variable of that name, where secrets belong:
    `{Authorization: Bearer $ACME_RAG_TOKEN}`."""

    request: RequestFields = RequestFields()
    """Names of a request's fields."""

    extra_body: dict[str, Any] = {}
    """Further fields of each request, as the service wants them."""

    answer: AnswerFields = AnswerFields()
    """Names of an answer's fields."""

    calibration: dict[Name, Calibration] = {}
    """Map from the service's scores to probabilities, by tenant. `qinglan check-rag` fits it if gold passages are
    known; a service with logits needs it."""

    snapshot_queries: tuple[QueryText, ...] = ()
    """Questions whose answers represent the knowledge base if the service sends no `snapshot`: their digest is
    sent in its place. `qinglan check-rag` names questions that are always answered alike."""

    @model_validator(mode="after")
    def _secrets_in_the_environment(self) -> Self:
        for name, value in self.headers.items():
            if is_literal_secret(name, value):
                raise ValueError(
                    f"headers: {name} holds a secret, which belongs in the environment. Write it as "
                    f"`{name}: Bearer $RAG_TOKEN`, or `{name}: $RAG_TOKEN`, and set RAG_TOKEN"
                )
        if name := secret_field(self.extra_body):
            raise ValueError(
                f"extra_body.{name}: a key is in no file. Send it as a header: `headers: {{X-API-Key: $RAG_KEY}}`"
            )
        return self

    @property
    def speaks_contract(self) -> bool:
        """True if requests and answers pass as they are."""
        shape = ("request", "extra_body", "answer", "calibration", "snapshot_queries")
        return all(getattr(self, name) == RagService.model_fields[name].default for name in shape)

    @property
    def rewrite_as_query(self) -> bool:
        """True if a rewrite is sent in place of the question, to a service that has no field for it."""
        return self.request.rewritten_query == self.request.query
