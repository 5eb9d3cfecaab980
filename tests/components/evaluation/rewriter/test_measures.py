"""Measures of one row: ranks by hand, copies, numbers without a source."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from components.evaluation.rewriter.measures import (
    LABEL_METRICS,
    METRICS,
    RetrievalResult,
    measure_judged,
    measure_labels,
    measure_rewrite,
    ndcg,
    rank,
    recall,
    top1,
)
from qinglan.rewriter.guard import failed_guards
from qinglan.rows.labels import Label
from qinglan.rows.rows import Question

QUESTION = Question(
    id="1", conversation_id="c", tenant_id="fivedoctors", question="那它一天吃几次", user_profile="45岁男性",
    history_summary="客服已介绍虾青素软胶囊，上一轮问的是退换货政策，用户表示收到的包装完好无损", gold=("k1",),
)  # fmt: skip
PASSAGE = "虾青素软胶囊全天总量以标签为上限，可随正餐分次摄入。"


def test_ndcg_by_hand() -> None:
    assert ndcg(("k1", "k2"), ("k1",)) == 1.0
    assert ndcg(("k2", "k1"), ("k1",)) == pytest.approx(1 / math.log2(3))
    assert ndcg(("x", "k1", "k2"), ("k1", "k2")) == pytest.approx(
        (1 / math.log2(3) + 1 / math.log2(4)) / (1 + 1 / math.log2(3))
    )
    assert ndcg((*"abcdefghij", "k1"), ("k1",)) == 0.0


def test_recall_and_top1_by_hand() -> None:
    assert (recall(("a", "k1"), ("k1", "k2")), top1(("a", "k1"), ("k1",)), rank(("a", "k1"), ("k1",))) == (
        0.5,
        0.0,
        2,
    )
    assert recall((*"abcdefghij", "k1"), ("k1",)) == 0.0
    assert (recall((), ("k1",)), top1((), ("k1",)), rank((), ("k1",))) == (0.0, 0.0, None)


LABELS = (Label(id="full", grade=3), Label(id="part", grade=2), Label(id="near", grade=1))


@pytest.mark.parametrize(
    ("ids", "top1", "condensed", "judged"),
    [
        (("full", "x"), 1.0, 1.0, 1.0),
        (("part", "full"), 1.0, 1.0, 1.0),
        (("near", "full"), 0.0, 0.0, 1.0),
        (("x", "full"), 0.0, 1.0, 0.0),
        (("x", "near"), 0.0, 0.0, 0.0),
        ((), 0.0, 0.0, 0.0),
    ],
)
def test_a_passage_that_nobody_judged_is_irrelevant_in_a_whole_list_and_absent_in_a_condensed_one(
    ids: tuple[str, ...], top1: float, condensed: float, judged: float
) -> None:
    measured = measure_labels(LABELS, ids)

    assert measured.keys() == LABEL_METRICS.keys()
    assert [measured[name] for name in ("labelled_top1", "condensed_top1", "first_judged")] == [
        top1,
        condensed,
        judged,
    ]


def test_ndcg_by_labels_is_whole_when_the_best_grade_comes_first() -> None:
    assert measure_labels(LABELS, ("full", "part"))["labelled_ndcg"] == 1.0
    assert measure_labels(LABELS, ("part", "full"))["labelled_ndcg"] == pytest.approx(0.8597, abs=1e-4)


def test_without_a_relevant_label_nothing_is_measured_by_labels() -> None:
    assert measure_labels((Label(id="near", grade=1),), ("near",)) == measure_labels((), ("near",)) == {}


def test_without_gold_nothing_is_known_of_gold() -> None:
    assert all(math.isnan(metric(("a",), ())) for metric in (top1, ndcg, recall))


@pytest.mark.slow
@given(st.lists(st.sampled_from("abcdefgh"), unique=True), st.sets(st.sampled_from("abcdefgh"), min_size=1))
def test_ranks_make_shares_and_a_gold_passage_moved_up_never_costs(ids: list[str], gold: set[str]) -> None:
    labels = tuple(gold)
    better = sorted(ids, key=lambda passage: passage not in gold)

    for metric in (top1, ndcg, recall):
        assert 0 <= metric(ids, labels) <= metric(better, labels) <= 1 + 1e-12


def test_every_metric_but_the_examiners_is_measured() -> None:
    values = measure_rewrite(QUESTION, "虾青素软胶囊 500毫克 45", RetrievalResult(("k2", "k1"), (PASSAGE, ""), 0.4))

    assert set(values) == set(METRICS) - {"quality"}
    assert (values["invented"], values["top1"], values["judged_top1"], values["zero_hit"]) == (1.0, 0.0, 0.4, 0.0)
    assert values["length_ratio"] == pytest.approx(15 / 7)


@pytest.mark.parametrize(
    ("rewrite", "invented"),
    [("虾青素 八岁能喝不", 1.0), ("虾青素 一次三百毫克", 1.0), ("虾青素 四十五岁", 0.0), ("虾青素 Q10", 0.0)],
)
def test_a_spelled_number_is_invented_where_the_guard_says_so(rewrite: str, invented: float) -> None:
    assert measure_rewrite(QUESTION, rewrite, RetrievalResult())["invented"] == invented
    assert ("invented_number" in failed_guards(QUESTION, rewrite)) == bool(invented)


def test_numbers_of_the_profile_are_not_invented_and_an_empty_rewrite_finds_nothing() -> None:
    assert measure_rewrite(QUESTION, "虾青素 45岁", RetrievalResult())["invented"] == 0.0
    empty = measure_rewrite(QUESTION, "", RetrievalResult())
    assert (empty["empty"], empty["zero_hit"], empty["top1"], empty["copied"]) == (1.0, 1.0, 0.0, 0.0)


def test_a_question_left_alone_counts_as_the_same_whatever_its_punctuation() -> None:
    assert measure_rewrite(QUESTION, "那它一天吃几次？", RetrievalResult())["same"] == 1.0
    assert measure_rewrite(QUESTION, "虾青素一天吃几次", RetrievalResult())["same"] == 0.0


GRADES = {"full": 3, "part": 2, "near": 1}


def test_an_unjudged_first_passage_leaves_the_row_unknown_and_is_no_failure() -> None:
    measured = measure_judged(GRADES, ("x", "full"))

    assert math.isnan(measured["top1"]) and (measured["first_judged"], measured["shown_judged"]) == (0.0, 0.5)


@pytest.mark.parametrize(("ids", "right"), [(("part", "x"), 1.0), (("near", "full"), 0.0), ((), 0.0)])
def test_a_first_passage_is_right_from_grade_two_on_and_nothing_found_is_wrong(
    ids: tuple[str, ...], right: float
) -> None:
    assert measure_judged(GRADES, ids)["top1"] == right


def test_unjudged_passages_are_taken_out_of_the_list_before_ndcg() -> None:
    measured = measure_judged(GRADES, ("full", "x", "part"))

    assert measured["ndcg"] == measured["recall"] == 1.0 > measured["pooled_ndcg"]


def test_where_no_passage_is_right_all_systems_are_wrong_and_no_list_is_measured() -> None:
    measured = measure_judged({"near": 1}, ("near",))

    assert measured["top1"] == 0.0 and math.isnan(measured["ndcg"]) and math.isnan(measured["recall"])
