"""Settings for the shape of a company's RAG service: its path, headers, field names and scale of scores.

A service that follows docs/rag-contract.md needs none of these settings.
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
"""Names of headers that hold secrets, in addition to names that SECRET_FIELD matches."""

SECRET_TEXT = re.compile(r"(?i:\b(bearer|basic)\s+\S)|(?=\S*\d)\S{8,}")
"""Text that looks like a secret: it follows `Bearer` or `Basic`, or it is a word of eight characters or more with a
digit."""


def is_literal_secret(name: str, value: str) -> bool:
    """True if a header's value holds a secret itself, next to or instead of a reference to an environment
    variable."""
    literal = ENVIRONMENT_VARIABLE.sub("", value)
    secret = bool(SECRET_FIELD.search(name) or SECRET_HEADER.search(name))
    if secret and literal == value:
        return True
    return bool(SECRET_TEXT.search(literal)) if secret else bool(re.match(r"(?i)(bearer|basic)\s+\S", literal))


class RequestFields(Config):
    """Path of each request field in the service's JSON body. Dots lead into objects; an empty path leaves the field
    out."""

    query: str = "query"
    """Path of the user's question."""

    rewritten_query: str = Field(default="rewritten_query", min_length=1)
    """Path of the text to search. If the service has no field for it, set the path of `query`: the text then replaces
    the question."""

    tenant_id: str = "tenant_id"
    """Path of the tenant's id."""

    kb_name: str = "kb_name"
    """Path of the knowledge base's name."""

    top_k: str = "top_k"
    """Path of the number of passages."""

    score_threshold: str = "score_threshold"
    """Path of the lowest score of a hit, in the service's own scale. A run requests answers without a cut."""

    need: str = "need"
    """Path of the text that passages are scored against; empty if the service can score only against the query."""


class AnswerFields(Config):
    """Path of each field in the service's answer. `id`, `content`, `score`, `query_score` and `metadata` begin at a
    passage."""

    code: str = "code"
    """Path of a status inside the answer; a missing status counts as success."""

    success_code: int | str = 200
    """Value of `code` in a good answer."""

    recall: str = Field(default="data.recall", min_length=1)
    """Path of the list of passages, the best first."""

    rewritten_query: str = "data.rewritten_query"
    """Path of the text that was searched, if the service sends it."""

    scored_against: str = "data.scored_against"
    """Path of a word, `need` or `query`, that says what scores are measured against; if it is missing, `query` is
    assumed."""

    snapshot: str = "data.snapshot"
    """Path of the SHA-256 of the knowledge base, if the service sends it."""

    id: str = "id"
    """Path of a passage's id in the knowledge base; gold passages are recognised by it."""

    content: str = "content"
    """Path of a passage's text."""

    score: str = Field(default="reranker_score", min_length=1)
    """Path of a passage's score."""

    query_score: str = "query_score"
    """Path of the score against the query, for services whose `score` is against the need."""

    metadata: str = "metadata"
    """Path of an object with more about a passage; its `title` is shown."""


class RagService(Config):
    """Path, headers and fields of a RAG service."""

    path: str = Field(default=RAG_PATH, pattern=r"^/\S*$")
    """Path that questions are posted to."""

    headers: dict[str, str] = {}
    """Headers of each request. `$NAME` is replaced by the environment variable NAME; secrets belong there:
    `{Authorization: Bearer $ACME_RAG_TOKEN}`."""

    request: RequestFields = RequestFields()
    """Paths of a request's fields."""

    extra_body: dict[str, Any] = {}
    """Further fields of each request that the service needs: paths with their values."""

    answer: AnswerFields = AnswerFields()
    """Paths of an answer's fields."""

    calibration: dict[Name, Calibration] = {}
    """Conversion of the service's scores to probabilities, by tenant. `qinglan check-rag` fits it if gold passages
    are known. A service whose scores are logits needs it."""

    snapshot_queries: tuple[QueryText, ...] = ()
    """Questions for a service that sends no `snapshot`: the digest of the answers to them replaces it. `qinglan
    check-rag` proposes questions whose answers do not vary."""

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
        """True if the service follows the contract, so that requests and answers need no translation."""
        shape = ("request", "extra_body", "answer", "calibration", "snapshot_queries")
        return all(getattr(self, name) == RagService.model_fields[name].default for name in shape)

    @property
    def rewrite_as_query(self) -> bool:
        """True if a rewrite is sent in place of the question, to a service that has no field for it."""
        return self.request.rewritten_query == self.request.query
