"""Rewards that a rewrite earns under anchored_v2, and those that it cannot earn."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qinglan.reward.config import RewardConfig
from qinglan.reward.episode import EMPTY_RETRIEVAL, Episode, Hit, JudgeScores, Prompt, RetrievalResult
from qinglan.reward.terms.anchored_v2 import (
    graded_quality,
    needless_rewrite_penalty,
    rank_reward,
    retrieval_quality,
)
from qinglan.reward.terms.reward_terms import PART_PREFIX, compute_reward_terms
from qinglan.rows.labels import Label, passage_gains

PROMPT = Prompt(
    id="r", tenant_id="fivedoctors", question="一天吃几次", history_summary="客服介绍了虾青素软胶囊，用户四十五岁",
    need="虾青素软胶囊一天吃几次", gold=("gold",), teacher_rewrite="虾青素软胶囊 一天吃几次",
)  # fmt: skip
GOOD = "虾青素软胶囊 每日服用频次"
EVEN = JudgeScores(0.8, 0.8, judged=True)
CONTENT = "虾青素软胶囊的每日服用频次以标签为准。常见问法：一天吃几次；每天要吃几回。"


def ranked(rank: int | None, top1: float = 0.5, depth: int = 10) -> RetrievalResult:
    """Ten passages with the gold one at this rank; the first of them bears the house's term."""
    ids = ["gold" if at == rank else f"p{at}" for at in range(1, depth + 1)]
    return RetrievalResult(tuple(Hit(id, top1, GOOD, CONTENT) for id in ids))


def rewarded(
    rewrite: str,
    student: RetrievalResult,
    teacher: RetrievalResult,
    plain: RetrievalResult = EMPTY_RETRIEVAL,
    prompt: Prompt = PROMPT,
    **changes: Any,
) -> dict[str, float]:
    judged = changes.pop("judged", EVEN)
    return compute_reward_terms(Episode(prompt, rewrite, student, teacher, plain, judged), RewardConfig(**changes))


@pytest.mark.parametrize(
    ("rank", "expected"), [(1, 1.0), (2, 0.5), (6, 0.3), (10, 0.1), (11, 0.0)]
)  # between 2 and 10 it falls by .05 a rank
def test_the_rank_reward_falls_along_a_line_behind_the_first(rank: int, expected: float) -> None:
    assert rank_reward(rank) == pytest.approx(expected)


def test_first_against_a_miss_is_clearly_positive_a_tie_is_nothing_and_a_miss_against_first_clearly_negative() -> (
    None
):
    won, tied, lost = (
        rewarded(GOOD, ranked(rank), ranked(rank_teacher))["score"]
        for rank, rank_teacher in ((1, None), (1, 1), (None, 1))
    )

    assert won == pytest.approx(0.40 * 0.995055 + 0.125, abs=1e-5)  # tanh(3) = .995055
    assert tied == 0.0
    assert lost == pytest.approx(-0.40 * 0.995055 - 0.075, abs=1e-5)


def test_coming_first_instead_of_second_is_worth_more_than_all_that_follows() -> None:
    rewards = [rewarded(GOOD, ranked(rank), ranked(2))["score"] for rank in range(1, 11)]

    assert rewards == sorted(rewards, reverse=True)
    assert rewards[0] - rewards[1] > rewards[1] - rewards[9]


def test_without_gold_the_scores_against_the_need_decide() -> None:
    unlabelled = PROMPT.model_copy(update={"gold": ()})

    terms = rewarded(GOOD, ranked(None, 0.9), ranked(None, 0.4), prompt=unlabelled)

    assert (terms["quality"], terms["quality_teacher"]) == pytest.approx((0.9, 0.4))
    assert (terms["gold_known"], terms["gold"]) == (0.0, 0.0)


LABELS = (Label(id="gold", grade=3), Label(id="p2", grade=2), Label(id="p3", grade=1))
LABELLED = PROMPT.model_copy(update={"gold": (), "labels": LABELS})


def test_labels_stand_in_for_gold_and_a_part_of_an_answer_is_worth_half() -> None:
    full, part, none = (graded_quality(ids, passage_gains(LABELS)) for ids in (["gold", "p2"], ["p2", "x"], ["p3"]))

    assert (full, none) == (1.0, 0.0)
    assert part == pytest.approx(0.5 * 0.5 + 0.5 * 0.5 / (1 + 0.5 / 1.58496), abs=1e-5)


def test_gold_counts_alone_where_it_is_known() -> None:
    both = PROMPT.model_copy(update={"labels": (Label(id="p1", grade=3),)})

    assert rewarded(GOOD, ranked(1), ranked(None), prompt=both) == rewarded(GOOD, ranked(1), ranked(None))


def test_a_row_by_labels_says_so_and_names_a_first_passage_that_nobody_judged() -> None:
    result, unknown = (rewarded(GOOD, ranked(rank), ranked(None), prompt=LABELLED) for rank in (1, None))

    assert (result["gold_known"], result["gold"], result["labelled"], result["unjudged"]) == (1.0, 1.0, 1.0, 0.0)
    second = 0.5 * 0.5 * 0.5 + 0.5 * 0.31546 / 1.31546  # grade 2 at rank 2: .5 / log2(3), of 1 + .5 / log2(3)
    assert (unknown["gold"], unknown["unjudged"]) == (0.0, 1.0)
    assert unknown["quality"] == pytest.approx(second, abs=1e-5)
    by_gold = rewarded(GOOD, ranked(None), ranked(None))
    assert (by_gold["labelled"], by_gold["unjudged"]) == (0.0, 0.0)


def test_labels_without_a_relevant_passage_leave_the_need_to_decide() -> None:
    irrelevant = PROMPT.model_copy(update={"gold": (), "labels": (Label(id="p1", grade=1),)})

    assert rewarded(GOOD, ranked(None, 0.9), ranked(None, 0.4), prompt=irrelevant)["gold_known"] == 0.0


def test_scores_against_the_rewrite_count_as_nothing_where_they_would_decide() -> None:
    by_query = RetrievalResult((Hit("p", 0.9),), scored_against="query")

    assert retrieval_quality(by_query, ("p",)) == 1.0
    assert retrieval_quality(by_query, ()) == 0.0


@pytest.mark.parametrize(
    ("rewrite", "why"),
    [
        ("", "empty"),
        ("。？", "empty"),
        ("虾青素软胶囊\n每日服用频次", "malformed"),
        ("<|im_start|>assistant 虾青素软胶囊", "malformed"),
        ("<think>嗯</think>虾青素软胶囊 每日服用频次", "malformed"),
        ('{"改写": "虾青素软胶囊 每日服用频次"}', "malformed"),
        ("改写后的查询：虾青素软胶囊 每日服用频次", "malformed"),
        ("虾青素软胶囊 每日\ufffd", "malformed"),
        ("好" * 1001, "malformed"),
        ("客服介绍了虾青素软胶囊，用户四十五岁", "copied"),
        ("虾青素软胶囊的每日服用频次以标签为准", "copied"),
    ],
)
def test_a_text_that_is_no_rewrite_gets_the_floor_though_it_finds_the_gold_passage(rewrite: str, why: str) -> None:
    terms = rewarded(rewrite, ranked(1), ranked(None), judged=JudgeScores(1.0, 0.2, True))

    assert (terms["score"], terms["floor"], terms[why]) == (-1.0, 1.0, 1.0)


@pytest.mark.parametrize("rewrite", [GOOD, "虾青素软胶囊一天吃几次", "一天吃几次", "维生素C 每日服用频次"])
def test_a_good_rewrite_has_no_penalty(rewrite: str) -> None:
    prompt = PROMPT.model_copy(update={"history_summary": "咨询维生素C，虾青素软胶囊"})

    terms = rewarded(rewrite, ranked(1), ranked(1), prompt=prompt)

    assert [terms[name] for name in ("floor", "repeats", "names", "numbers")] == [0, 0, 0, 0]


def test_a_heading_is_the_houses_word_for_a_thing_and_not_a_copy() -> None:
    long = "辅酶Q10亚麻籽油复合软胶囊 特殊人群服用注意事项"
    hits = RetrievalResult((Hit("gold", 0.9, long, f"{long}：请遵医嘱。"),))

    assert rewarded(long, hits, hits)["floor"] == 0.0


@pytest.mark.parametrize(
    ("rewrite", "fault"),
    [
        (GOOD + " 请问这个产品到底应该怎么吃才最好呢", "length"),
        (f"{GOOD} {GOOD}", "repeats"),
        (GOOD + " 纳豆激酶", "names"),
        (GOOD + " 500mg", "numbers"),
        (GOOD + " ３粒", "numbers"),
    ],
)
def test_each_fault_costs_and_no_more_than_it_may(rewrite: str, fault: str) -> None:
    clean, faulty = (rewarded(text, ranked(1), ranked(None)) for text in (GOOD, rewrite))

    assert -getattr(RewardConfig().penalties, fault) <= faulty[PART_PREFIX + fault] < 0
    assert faulty["score"] < clean["score"]
    assert clean[PART_PREFIX + fault] == 0


def test_numbers_of_the_conversation_are_free_in_digits_or_spelled_out() -> None:
    assert rewarded(GOOD + " 45岁", ranked(1), ranked(1))["numbers"] == 0
    assert rewarded(GOOD + " 46岁", ranked(1), ranked(1))["numbers"] == 1


def test_leaving_a_good_query_alone_pays() -> None:
    unchanged, needless_, harmful = (
        rewarded(text, hits, ranked(1), plain=ranked(1))["score"]
        for text, hits in (("一天吃几次？", ranked(1)), (GOOD, ranked(1)), (GOOD, ranked(None)))
    )

    assert unchanged == 0
    assert needless_ == pytest.approx(-0.1)
    assert harmful < rewarded(GOOD, ranked(None), ranked(1))["score"]  # than where the question found nothing either


def test_rewriting_a_question_that_finds_nothing_is_free_to_try() -> None:
    assert rewarded(GOOD, ranked(None), ranked(None))["score"] == 0


@given(st.floats(0, 1), st.floats(0, 1))
def test_rewriting_costs_only_where_it_finds_no_better(quality: float, plain: float) -> None:
    cost = needless_rewrite_penalty(quality, plain, unchanged=False, scale=3.0)

    assert 0 <= cost <= 2
    assert cost == 0 or quality <= plain
    assert needless_rewrite_penalty(quality, plain, unchanged=True, scale=3.0) == 0


TEXTS = st.text(alphabet="虾青素软胶囊每日服用频次 一天吃几\n<{。12", max_size=60)
RANKS = st.one_of(st.none(), st.integers(1, 10))


@pytest.mark.slow
@given(TEXTS, RANKS, RANKS, RANKS, st.floats(0.2, 1), st.floats(0.2, 1))
def test_the_score_is_the_sum_of_its_parts_or_the_floor(
    text: str, rank: int | None, rank_teacher: int | None, plain: int | None, judge: float, judge_teacher: float
) -> None:
    terms = rewarded(
        text, ranked(rank), ranked(rank_teacher), ranked(plain), judged=JudgeScores(judge, judge_teacher, judged=True)
    )

    total = sum(value for name, value in terms.items() if name.startswith(PART_PREFIX))
    assert terms["score"] == (-1.0 if terms["floor"] else pytest.approx(max(-1.0, min(1.0, total))))
    assert set(map(type, terms.values())) == {float}
    assert list(terms) == list(rewarded(GOOD, ranked(1), ranked(1)))


@given(TEXTS, RANKS)
def test_no_text_raises_its_own_quality(text: str, rank: int | None) -> None:
    """Quality is of ranks alone: reranker scores, which a text can influence, do not enter it."""
    low, high = (rewarded(text, ranked(rank, top1), ranked(1)) for top1 in (0.0, 1.0))

    assert low["score"] == high["score"]
