"""The layout of a knowledge base in OpenSearch: an index for each snapshot, and one alias that names the served one.

    qinglan.fivedoctors.default               the alias
    qinglan.fivedoctors.default.<sha256>      an index; the digest is that of the knowledge base's bytes

No tenant and no knowledge base has a dot in its name, so no two pairs of them share an alias.
"""

from typing import Any, Self

from pydantic import ValidationError

from qinglan.config import Config, Name, explain_validation_error
from qinglan.errors import DataError

FORMAT = 2
TERMS = "terms"
"""The field of our own terms, which is searched."""

OWNER = "qinglan"
"""The first part of every index name, and the key of our metadata in an index's mapping."""

LOAD_AGAIN_HINT = "Load the knowledge base again: python -m serving.rag.load"

K1, B = 1.2, 0.75
"""BM25's constants in tantivy, so that both engines rank alike."""


def alias_of(tenant_id: str, kb_name: str) -> str:
    return f"{OWNER}.{tenant_id}.{kb_name}"


def index_of(tenant_id: str, kb_name: str, snapshot: str) -> str:
    return f"{alias_of(tenant_id, kb_name)}.{snapshot}"


class IndexMetadata(Config):
    """The description of an index, stored in its mapping's _meta."""

    format: int
    tenant_id: Name
    kb_name: Name
    snapshot: str
    passages: int
    whole: bool
    """False while it is loaded; the alias never names such an index."""

    def named(self, index: str) -> bool:
        """True for the index that this was written for: a copy of an index carries the same metadata."""
        return index == index_of(self.tenant_id, self.kb_name, self.snapshot)

    @classmethod
    def read(cls, index: str, answer: Any, again: str = LOAD_AGAIN_HINT) -> Self:
        """Read the metadata in an answer of `_mapping`; a DataError if this version cannot use the index."""
        try:
            notes = cls.model_validate(answer["mappings"]["_meta"][OWNER])
        except (KeyError, TypeError) as error:
            raise DataError(f"{index}: not an index of ours: its mapping has no notes. {again}") from error
        except ValidationError as error:
            raise DataError(f"{index}: its notes are not ours: {explain_validation_error(error)}. {again}") from error
        if notes.format != FORMAT:
            raise DataError(f"{index}: has format {notes.format} and this version reads {FORMAT}. {again}")
        return notes


def index_body(notes: IndexMetadata) -> dict[str, Any]:
    """The body that creates an index. With one shard a term's weight is that of the whole knowledge base."""
    return {
        "settings": {
            "index": {
                "number_of_shards": 1,
                "number_of_replicas": 0,
                "refresh_interval": "-1",
                "similarity": {"default": {"type": "BM25", "k1": K1, "b": B}},
            }
        },
        "mappings": {
            "dynamic": False,
            "_meta": metadata_mapping(notes),
            "_source": {"excludes": [TERMS]},
            "properties": {
                "id": {"type": "keyword", "doc_values": False},
                "title": {"type": "text", "index": False},
                "content": {"type": "text", "index": False},
                "metadata": {"type": "object", "enabled": False},
                "number": {"type": "integer"},
                "weights": {"type": "double", "index": False, "doc_values": False},
                TERMS: {"type": "text", "analyzer": "whitespace", "index_options": "freqs"},
            },
        },
    }


def metadata_mapping(notes: IndexMetadata) -> dict[str, Any]:
    return {OWNER: notes.model_dump()}
