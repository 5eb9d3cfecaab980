"""The wait for a rewrite follows what the rewriter lately took, between a second and the setting."""

import pytest

from serving.rag.patience import ENOUGH, LEAST_SECONDS, WINDOW, Patience, patience_seconds


@pytest.mark.parametrize(
    ("seconds", "most", "waited"),
    [
        ([], 3.0, 3.0),
        ([0.1] * (ENOUGH - 1), 3.0, 3.0),
        ([0.1] * ENOUGH, 3.0, LEAST_SECONDS),
        ([0.1] * ENOUGH, 0.4, 0.4),
        ([0.9] * 95 + [2.5] * 5, 3.0, 1.8),
        ([0.9] * 94 + [1.2] * 6, 3.0, 2.4),
        ([2.0] * ENOUGH, 3.0, 3.0),
    ],
)
def test_it_is_twice_the_95th_percentile_within_its_bounds(seconds: list[float], most: float, waited: float) -> None:
    assert patience_seconds(seconds, most) == pytest.approx(waited)


def test_a_rewriter_that_became_slower_is_waited_for_again() -> None:
    """Each request takes 2.4 s now; the wait of a fast past ends before that, so the first ones are given up."""
    patience = Patience(3.0)
    for _ in range(WINDOW):
        patience.observe(0.1)
    waits = []
    for _ in range(WINDOW):
        waits.append(patience.seconds)
        patience.observe(min(2.4, patience.seconds))

    assert (waits[0], waits[-1]) == (LEAST_SECONDS, 3.0)
    assert waits == sorted(waits)
    assert sum(wait < 2.4 for wait in waits) < WINDOW / 5
