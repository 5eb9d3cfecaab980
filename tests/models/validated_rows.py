"""Rows as the validate stage writes them."""

from typing import Any

from qinglan.rag.retrieval import RetrievalConfig
from qinglan.rows.rows import Hit, Retrieval, ValidatedRewrite

RETRIEVAL = Retrieval(query="虾青素", hits=(Hit(id="k1", reranker_score=0.5),), top1_score=0.5, count=1, gold_rank=1)


def validated(**changes: Any) -> ValidatedRewrite:
    """An accepted row of training whose gold passage comes first; what a test is about, it says."""
    values: dict[str, Any] = {
        "id": "r1", "tenant_id": "fivedoctors", "conversation_id": "c1", "question": "一天吃几次",
        "history_summary": "用户正在了解虾青素", "need": "虾青素一天吃几次", "need_source": "sheet", "gold": ("k1",),
        "split": "train", "rewritten_query": "虾青素 每日服用频次", "teacher": "standin", "call": "c",
        "scored_against": "need", "snapshot": "s", "retrieved_with": RetrievalConfig(),
        "plain": RETRIEVAL, "rewritten": RETRIEVAL, "accepted": True, "reason": "",
    }  # fmt: skip
    return ValidatedRewrite.model_validate(values | changes)
