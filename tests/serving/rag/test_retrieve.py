"""The query decides which passages come, and in which order; the need only what they score."""

import asyncio

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from qinglan.rag.contract import RagData, RecalledPassage
from qinglan.rag.retrieval import RetrievalConfig
from serving.rag.engine import TantivyEngine
from serving.rag.retrieve import retrieve

Engines = dict[tuple[str, str], TantivyEngine]

WORDS = [
    "虾青素",
    "软胶囊",
    "胶原蛋白肽饮",
    "鱼油",
    "一天吃几次",
    "每日服用频次",
    "要不要放冰箱",
    "副作用",
    "退",
    "zz",
    "。",
]
TEXTS = st.lists(st.sampled_from(WORDS), min_size=1, max_size=5).map("".join) | st.text(min_size=1, max_size=40)


def recall(
    engines: Engines, query: str, need: str | None, top_k: int = 5, threshold: float = 0.0
) -> tuple[RecalledPassage, ...]:
    return asyncio.run(retrieve(engines["fivedoctors", "default"], query, top_k, threshold, need)).recall


@pytest.mark.slow
@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(query=TEXTS, need=TEXTS, top_k=st.integers(1, 30), threshold=st.sampled_from([0.0, 0.01, 0.1, 0.5, 0.9]))
def test_need_changes_scores_and_never_order_cut_or_threshold(
    engines: Engines, query: str, need: str, top_k: int, threshold: float
) -> None:
    by_query = recall(engines, query, None, top_k, threshold)
    by_need = recall(engines, query, need, top_k, threshold)

    assert [hit.id for hit in by_need] == [hit.id for hit in by_query]
    assert len(by_query) <= top_k
    assert all(hit.reranker_score >= threshold - 1e-6 for hit in by_query)
    alone = {hit.id: hit.reranker_score for hit in recall(engines, need, None, 30)}
    assert all(hit.reranker_score == alone[hit.id] for hit in by_need if hit.id in alone)


@pytest.mark.slow
@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(query=TEXTS, need=TEXTS, threshold=st.sampled_from([0.0, 0.01, 0.1, 0.5, 0.9]))
def test_whole_ranks_cut_afterwards_are_the_beginning_of_what_the_service_cuts(
    engines: Engines, query: str, need: str, threshold: float
) -> None:
    config = RetrievalConfig(score_threshold=threshold)
    answer = {"rewritten_query": query, "scored_against": "need", "rewriter": "request", "snapshot": ""}

    by_service = recall(engines, query, need, 10, threshold)
    whole = recall(engines, query, need, 10)
    shown = config.shown(RagData.model_validate({**answer, "recall": whole}))

    assert shown == by_service[: len(shown)]
    assert {hit.id for hit in by_service[len(shown) :]}.isdisjoint(hit.id for hit in whole)


@pytest.mark.parametrize("need", [None, "胶原蛋白肽饮要不要放冰箱"])
@pytest.mark.parametrize(
    "query",
    ["一天吃几次", "虾青素软胶囊 每日服用频次", "鱼油", "副作用 退", "胶原蛋白肽饮要不要放冰箱", "zz 鱼油"],
)
def test_the_best_score_against_the_query_is_first(engines: Engines, query: str, need: str | None) -> None:
    hits = recall(engines, query, need, 10)

    assert len(hits) > 1
    scores = [hit.query_score or 0.0 for hit in hits]
    assert scores == sorted(scores, reverse=True)
    if need is None:
        assert scores == [hit.reranker_score for hit in hits]


def test_a_need_that_the_passages_do_not_meet_shows_in_their_scores(engines: Engines) -> None:
    query = "鱼油软胶囊 每日服用频次"

    met, not_met = (recall(engines, query, need, 1)[0] for need in (query, "胶原蛋白肽饮要不要放冰箱"))

    assert met.id == not_met.id == "fivedoctors-2-0"
    assert met.reranker_score > 0.5 > not_met.reranker_score


def test_a_passage_below_the_threshold_makes_room_for_none(engines: Engines) -> None:
    everything = recall(engines, "鱼油软胶囊 每日服用频次", None, 5, 0.0)
    confident = recall(engines, "鱼油软胶囊 每日服用频次", None, 5, 0.5)

    assert len(everything) == 5
    assert [hit.id for hit in confident] == [hit.id for hit in everything if hit.reranker_score >= 0.5] != []
