"""Kinds of questions, told without labels."""

import pytest

from qinglan.evaluation.question_kinds import question_kinds, training_terms
from qinglan.rows.rows import Hit, Retrieval, ValidatedRewrite
from tests.models.validated_rows import validated

KNOWN = training_terms(["虾青素怎么买", "它一天吃几次", "一次吃几粒", "how many capsules a day"])


def row(question: str, need: str, score: float = 0.9, against: str = "need") -> ValidatedRewrite:
    result = Retrieval(query=question, hits=(Hit(id="k1", reranker_score=score),), top1_score=score, count=1)
    return validated(question=question, need=need, plain=result, rewritten=result, scored_against=against)


@pytest.mark.parametrize(
    ("question_row", "kinds"),
    [
        (row("虾青素一天吃几次", "虾青素一天吃几次"), ("complete",)),
        (row("它一天吃几次", "虾青素软胶囊一天吃几次"), ("in pieces",)),
        (row("它一天吃几次", "虾青素软胶囊一天吃几次", score=0.4), ("in pieces", "house words")),
        (row("它一天吃几次", "虾青素软胶囊一天吃几次", score=0.4, against="query"), ("in pieces",)),
        (row("搁多久失效", "虾青素软胶囊搁多久失效"), ("in pieces", "rare words")),
        (row("how many capsules a day", "how many capsules a day"), ("complete",)),
        (row("does it expire", "does Astaxanthin expire"), ("in pieces", "rare words")),
    ],
)
def test_a_question_is_of_kinds_that_its_words_and_passages_tell(
    question_row: ValidatedRewrite, kinds: tuple[str, ...]
) -> None:
    assert question_kinds(question_row, KNOWN) == kinds
