"""Computes a digest of the answers to a few fixed questions, for a service that sends no digest of its knowledge
base.

The digest changes when an answer changes. A passage that none of the questions retrieves may change unnoticed.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import orjson

from qinglan.files.files import sha256_text
from qinglan.rag.contract import SAMPLED_SNAPSHOT

SAMPLE_DEPTH = 10
"""Number of passages of an answer that the digest covers."""


def sample_requests(queries: Sequence[str], tenant: str, kb_name: str) -> Iterator[dict[str, Any]]:
    for query in queries:
        yield {
            "query": query,
            "rewritten_query": query,
            "tenant_id": tenant,
            "kb_name": kb_name,
            "top_k": SAMPLE_DEPTH,
            "score_threshold": 0.0,
        }


def sampled_snapshot(queries: Sequence[str], answers: Sequence[Mapping[str, Any]]) -> str:
    """Compute the digest of each answer's passages. Scores are left out, because on GPUs their last digit varies."""
    # Sorted, since passages with equal scores may come in any order.
    passages = [
        sorted([str(hit.get("id", "")), str(hit.get("content", ""))] for hit in answer["recall"])
        for answer in answers
    ]
    content = orjson.dumps(list(zip(queries, passages, strict=True)))
    return SAMPLED_SNAPSHOT + sha256_text(content.decode())
