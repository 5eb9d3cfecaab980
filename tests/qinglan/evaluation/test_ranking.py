"""The ranking measures are those of ir_measures, to 1e-9, on graded judgements and rankings with ties."""

import random

import ir_measures
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ir_measures import RR, P, R, nDCG

from qinglan.evaluation.ranking import DEPTH, measure_ranking

OUTSIDE = {"ndcg10": nDCG @ 10, "recall10": R @ 10, "recall100": R @ 100, "mrr": RR, "p1": P @ 1}


def by_score(run: dict[str, float]) -> list[str]:
    """The order of trec_eval: by score, ties by name, both from the highest."""
    return sorted(run, key=lambda name: (run[name], name), reverse=True)[:DEPTH]


def outside(grades: dict[str, int], run: dict[str, float]) -> dict[str, float]:
    measured = ir_measures.calc_aggregate(list(OUTSIDE.values()), {"q": grades}, {"q": run})
    return {name: measured[measure] for name, measure in OUTSIDE.items()}


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(
    seed=st.integers(0, 10_000), judged=st.integers(1, 40), retrieved=st.integers(0, 100), levels=st.integers(1, 50)
)
def test_every_measure_equals_ir_measures_on_graded_rankings_with_ties(
    seed: int, judged: int, retrieved: int, levels: int
) -> None:
    rng = random.Random(seed)
    names = [f"d{number}" for number in range(150)]
    grades = {name: rng.choice((-1, 0, 0, 1, 1, 2, 3)) for name in rng.sample(names, judged)}
    run = {name: float(rng.randrange(levels)) for name in rng.sample(names, retrieved)}

    ours, theirs = measure_ranking(by_score(run), grades), outside(grades, run)

    assert ours == pytest.approx(theirs, abs=1e-9, rel=0)
    assert set(ours) == set(theirs)


def test_a_query_without_a_relevant_passage_scores_0_as_it_does_there() -> None:
    assert set(measure_ranking(["a"], {"a": 0}).values()) == {0.0}
    assert outside({"a": 0}, {"a": 1.0}) == measure_ranking(["a"], {"a": 0})


def test_a_higher_grade_first_is_worth_more() -> None:
    grades = {"a": 3, "b": 1}

    assert measure_ranking(["a", "b"], grades)["ndcg10"] == 1.0
    assert measure_ranking(["b", "a"], grades)["ndcg10"] == pytest.approx(
        (1 + 3 / 1.584962500721156) / (3 + 1 / 1.584962500721156)
    )
