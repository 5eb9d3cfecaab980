"""Guess from usual field names where an unknown answer holds its passages and their fields."""

from collections.abc import Iterator
from typing import Any

from qinglan.rag.adapter import get
from qinglan.rag.service_shape import AnswerFields

SCORE_NAMES = (
    "reranker_score", "rerank_score", "relevance_score", "rerankScore", "relevanceScore", "score", "similarity",
    "_score", "rank_score",
)  # fmt: skip
CONTENT_NAMES = (
    "content", "text", "page_content", "pageContent", "passage", "chunk", "snippet", "document", "body", "answer",
)  # fmt: skip
ID_NAMES = ("id", "doc_id", "docId", "chunk_id", "chunkId", "passage_id", "document_id", "documentId", "_id", "key")
CODE_NAMES = ("code", "status", "errcode", "err_code", "ret", "retcode")
DEEPEST_LIST, DEEPEST_FIELD = 4, 3


def guess_answer_fields(body: Any) -> AnswerFields | None:
    """Return the paths of the first list whose items have a score, and of their fields; None if there is none."""
    for path, items in object_lists(body):
        if score := first_path(items[0], SCORE_NAMES, (int, float)):
            fields = {
                "recall": path, "score": score,
                "content": first_path(items[0], CONTENT_NAMES, (str,)) or "",
                "id": first_path(items[0], ID_NAMES, (str, int)) or "",
                **guess_code(body),
            }  # fmt: skip
            return AnswerFields.model_validate(fields)
    return None


def guess_code(body: Any) -> dict[str, Any]:
    """Guess the settings of the status field from the body of a good answer; empty if it has no such field."""
    for name in CODE_NAMES:
        value = get(body, name)
        if isinstance(value, int | str) and not isinstance(value, bool):
            return {"code": name, "success_code": value}
    return {}


def object_lists(value: Any, path: str = "", depth: int = 0) -> Iterator[tuple[str, list[Any]]]:
    """Yield lists of objects with their paths, the least nested first."""
    if not isinstance(value, dict) or depth > DEEPEST_LIST:
        return
    inner = {f"{path}.{name}" if path else name: item for name, item in value.items()}
    for name, item in inner.items():
        if isinstance(item, list) and item and isinstance(item[0], dict):
            yield name, item
    for name, item in inner.items():
        yield from object_lists(item, name, depth + 1)


def first_path(item: Any, names: tuple[str, ...], kinds: tuple[type, ...]) -> str:
    """Return the path of the first usual name with a value of these types, the shortest of several; else empty."""
    leaves = list(leaf_paths(item))
    for name in names:
        for path, value in sorted(leaves, key=lambda leaf: leaf[0].count(".")):
            if path.rpartition(".")[2] == name and isinstance(value, kinds) and not isinstance(value, bool):
                return path
    return ""


def leaf_paths(value: Any, path: str = "", depth: int = 0) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict) and depth < DEEPEST_FIELD:
        for name, item in value.items():
            yield from leaf_paths(item, f"{path}.{name}" if path else name, depth + 1)
    elif path:
        yield path, value
