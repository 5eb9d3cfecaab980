"""Layout of a knowledge base in OpenSearch: an index for each snapshot, and one alias for the index that is served.

    qinglan.fivedoctors.default               the alias
    qinglan.fivedoctors.default.<sha256>      an index, with the digest of the knowledge base's file

Names of tenants and knowledge bases have no dots, so two knowledge bases never share an alias.
"""

from typing import Any, Self

from pydantic import ValidationError

from qinglan.config import Config, Name, explain_validation_error
from qinglan.errors import DataError

FORMAT = 2
TERMS = "terms"
"""Name of the searched field, which contains Qinglan's own terms."""

OWNER = "qinglan"
"""First part of every index name, and key of Qinglan's metadata in an index's mapping."""

LOAD_AGAIN_HINT = "Load the knowledge base again: python -m serving.rag.load"

K1, B = 1.2, 0.75
"""Constants of BM25 as in tantivy, so that both engines rank alike."""


def alias_of(tenant_id: str, kb_name: str) -> str:
    return f"{OWNER}.{tenant_id}.{kb_name}"


def index_of(tenant_id: str, kb_name: str, snapshot: str) -> str:
    return f"{alias_of(tenant_id, kb_name)}.{snapshot}"


class IndexMetadata(Config):
    """Metadata of an index, stored in the `_meta` field of its mapping."""

    format: int
    tenant_id: Name
    kb_name: Name
    snapshot: str
    passages: int
    whole: bool
    """False until the index is completely loaded; the loader sets the alias only to complete indexes."""

    def named(self, index: str) -> bool:
        """True if this metadata was written for the index. A copy of an index has the metadata of its original."""
        return index == index_of(self.tenant_id, self.kb_name, self.snapshot)

    @classmethod
    def read(cls, index: str, answer: Any, again: str = LOAD_AGAIN_HINT) -> Self:
        """Read the metadata in an answer of `_mapping`. Raises a DataError if this version cannot use the index."""
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
    """Build the request that creates an index. It has one shard, so that terms are counted over all passages."""
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
