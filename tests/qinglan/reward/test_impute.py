"""Which prompts are judged, and what stands in for the judge on the others."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qinglan.reward.episode import Prompt
from qinglan.reward.impute import (
    DEFAULT_SCORE,
    FEATURE_COUNT,
    HAT_BASIS_STEPS,
    LEAST,
    MIN_JUDGED_SCORES,
    MOST,
    Imputer,
    features,
    in_sample,
    raw_features,
)
from tests.qinglan.reward.conftest import GOOD, NEED, QUESTION, TEACHER, extra_info

PROMPT = Prompt.model_validate(extra_info())
ANY = st.floats(allow_nan=False)
WORDS = st.text("虾青素软胶囊一天吃几次每日服用频次甲乙 ", max_size=20)


def test_about_the_share_of_prompts_is_sampled_whole_and_by_seed() -> None:
    ids = [f"row-{number}" for number in range(4000)]
    once, again, other = ([in_sample(id, 0.3, seed, "judge") for id in ids] for seed in (1, 1, 2))

    assert sum(once) / len(ids) == pytest.approx(0.3, abs=0.03)
    assert once == again != other
    assert not any(in_sample(id, 0.0, 1, "judge") for id in ids)
    assert all(in_sample(id, 1.0, 1, "judge") for id in ids)


def test_before_it_has_seen_enough_the_imputer_says_the_mean() -> None:
    imputer = Imputer(features=2)
    assert imputer.predict((1.0, 1.0)) == DEFAULT_SCORE

    for score in (0.4, 0.8):
        imputer.add((score, 0.0), score)

    assert imputer.predict((0.0, 0.0)) == imputer.predict((1.0, 1.0)) == pytest.approx(0.6)


def test_then_it_follows_what_the_judge_rewards() -> None:
    imputer, rng = Imputer(features=2), np.random.default_rng(0)
    for quality, top1 in rng.random((400, 2)):
        imputer.add((quality, top1), 0.3 + 0.5 * quality)

    assert imputer.predict((0.0, 0.5)) == pytest.approx(0.3, abs=0.02)
    assert imputer.predict((1.0, 0.5)) == pytest.approx(0.8, abs=0.02)


@pytest.mark.slow
@given(
    st.lists(
        st.tuples(st.floats(0, 1), st.floats(0, 1), st.floats(LEAST, MOST)), min_size=MIN_JUDGED_SCORES, max_size=60
    )
)
def test_an_imputed_score_is_one_that_a_judge_could_give(scores: list[tuple[float, float, float]]) -> None:
    imputer = Imputer(features=2)
    for quality, top1, score in scores:
        imputer.add((quality, top1), score)

    assert LEAST <= imputer.predict((1.0, 0.0)) <= MOST


def test_imputing_keeps_more_of_the_judges_weight_than_filling_in_zero() -> None:
    """A judge whose opinion follows quality, and three prompts in ten judged."""
    rng, imputer = np.random.default_rng(1), Imputer(features=2)
    quality = rng.random(3000)
    judge = np.clip(0.3 + 0.5 * quality + rng.normal(0, 0.1, 3000), LEAST, MOST)
    known = rng.random(3000) < 0.3
    for q, j in zip(quality[known], judge[known], strict=True):
        imputer.add((q, 0.0), j)
    imputed = np.array([imputer.predict((q, 0.0)) for q in quality])

    def slope(filled: Any) -> float:
        """How far the judge's own opinion moves the reward's judge part."""
        return float(np.cov(judge, 0.35 * filled)[0, 1] / np.var(judge))

    assert slope(np.where(known, judge, 0.0)) < 0.15
    assert slope(np.where(known, judge, imputed)) > 0.25


@given(WORDS, ANY, ANY)
def test_features_are_shares_and_each_figures_add_up_to_one(text: str, quality: float, top1: float) -> None:
    observed = np.array(features(PROMPT, text, quality, top1))

    assert observed.shape == (FEATURE_COUNT,)
    assert ((observed >= 0) & (observed <= 1)).all()
    grid = (HAT_BASIS_STEPS + 1) ** 2
    assert [observed[:grid].sum(), *observed[grid:].reshape(2, -1).sum(axis=1)] == pytest.approx([1.0] * 3)


@pytest.mark.parametrize(("quality", "end"), [(-0.4, 0.0), (1.7, 1.0)])
def test_a_quality_that_leaves_its_bounds_stands_at_their_end(quality: float, end: float) -> None:
    assert features(PROMPT, GOOD, quality, 0.5) == features(PROMPT, GOOD, end, 0.5)


@pytest.mark.parametrize(
    ("text", "known", "need_share"),
    [
        (QUESTION, 1.0, 0.4),  # all of it the user's words; 一天, 天吃, 吃几 and 几次 of the need's ten pairs
        (NEED, 0.9, 1.0),  # 囊一 stands in no word of the conversation
        (TEACHER, 1.0, 0.9),
        ("纳豆激酶", 0.0, 0.0),
        ("", 0.0, 0.0),
    ],
)
def test_the_words_that_are_known_and_those_of_the_need_are_counted(
    text: str, known: float, need_share: float
) -> None:
    assert raw_features(PROMPT, text, 0.3, 1.0) == pytest.approx([0.3, 1.0, known, need_share])
