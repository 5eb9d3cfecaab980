"""Answers of search services in the wild: where their passages and scores are."""

from typing import Any

import pytest

from pipelines.checks.rag.guess_fields import guess_answer_fields


@pytest.mark.parametrize(
    ("body", "recall", "score", "content", "id_", "code"),
    [
        (
            {"code": 0, "data": {"records": [{"segment": {"id": "s", "content": "x"}, "score": 0.4}]}},
            "data.records", "score", "segment.content", "segment.id", 0,
        ),
        (
            {"hits": {"total": 1, "hits": [{"_id": "1", "_score": 3.2, "_source": {"text": "x"}}]}},
            "hits.hits", "_score", "_source.text", "_id", 200,
        ),
        (
            {"errcode": "OK", "docs": [{"page_content": "x", "metadata": {"doc_id": 7}, "relevance_score": -2}]},
            "docs", "relevance_score", "page_content", "metadata.doc_id", "OK",
        ),
        (
            {"meta": [{"name": "no score"}], "result": {"list": [{"similarity": 0.1, "score": 0.9, "chunk": "x"}]}},
            "result.list", "score", "chunk", "", 200,
        ),
    ],
)  # fmt: skip
def test_usual_names_are_recognised(body: Any, recall: str, score: str, content: str, id_: str, code: Any) -> None:
    fields = guess_answer_fields(body)

    assert fields is not None
    assert (fields.recall, fields.score, fields.content, fields.id) == (recall, score, content, id_)
    assert fields.success_code == code


@pytest.mark.parametrize("body", [{}, [], {"answer": "text"}, {"docs": []}, {"docs": [{"text": "x"}]}])
def test_an_answer_without_scored_passages_is_not_guessed(body: Any) -> None:
    assert guess_answer_fields(body) is None
