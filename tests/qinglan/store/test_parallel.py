"""Several at once: what comes back when, and how much is held."""

from collections.abc import Iterator

import pytest

from qinglan.store.parallel import MAX_WORKERS, map_in_order, run_each


def test_no_item_is_taken_before_there_is_room_for_it() -> None:
    taken: list[int] = []

    def items() -> Iterator[int]:
        for number in range(100):
            taken.append(number)
            yield number

    results = map_in_order(lambda number: number, items())
    held = []
    for done, result in enumerate(results, 1):
        held.append(len(taken) - done)
        assert result == done - 1

    assert max(held) <= MAX_WORKERS
    assert len(taken) == 100


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
