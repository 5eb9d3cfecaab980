"""A RAG that answers anything after a set time: `python -m benchmarks.slow_rag SECONDS`."""

import json
import sys
from typing import Any

from benchmarks.standin import serve

HITS = [
    {
        "id": f"k{n}",
        "content": "内容" * 60,
        "reranker_score": 0.9 - n / 10,
        "query_score": 0.9 - n / 10,
        "metadata": {},
    }
    for n in range(5)
]
BASE = {"tenant_id": "fivedoctors", "kb_name": "default", "snapshot": "0" * 64, "passages": 5}


def answer(path: str, body: bytes) -> dict[str, Any]:
    if path == "/api/knowledge_bases":
        return {"knowledge_bases": [BASE]}
    data = {
        "rewritten_query": json.loads(body)["rewritten_query"], "recall": HITS, "scored_against": "need",
        "rewriter": "request", "rewriter_version": "", "fallback_reason": "", "snapshot": "",
    }  # fmt: skip
    return {"code": 200, "msg": "success", "data": data}


if __name__ == "__main__":
    serve(answer, float(sys.argv[1]))
