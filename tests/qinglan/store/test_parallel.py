"""Several at once: after a failure nothing more is started."""

from collections.abc import Iterator

import pytest

from qinglan.store.parallel import MAX_WORKERS, map_in_order, run_each


def test_after_a_failure_nothing_more_is_taken() -> None:
    taken: list[int] = []

    def items() -> Iterator[int]:
        for number in range(1000):
            taken.append(number)
            yield number

    def work(number: int) -> None:
        if number == 3:
            raise OSError("no")

    with pytest.raises(OSError, match="no"):
        list(map_in_order(work, items()))
    assert len(taken) <= 3 + MAX_WORKERS + 1

    with pytest.raises(OSError, match="no"):
        run_each(work, range(1000))
