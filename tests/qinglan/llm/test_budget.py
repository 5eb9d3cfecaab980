import asyncio
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qinglan.errors import BudgetError
from qinglan.llm.budget import Budget

CALLS = st.lists(st.tuples(st.integers(1, 40), st.floats(0, 1), st.integers(0, 5)), max_size=60)


@pytest.mark.slow
@given(cap=st.integers(1, 200), calls=CALLS, seed=st.integers(0, 1000))
def test_spent_and_reserved_never_pass_the_cap_whatever_the_interleaving(
    cap: int, calls: list[tuple[int, float, int]], seed: int
) -> None:
    budget, observed, order = Budget(cap), [], random.Random(seed)

    async def call(worst: int, share: float, turns: int) -> None:
        for _ in range(order.randrange(6)):
            await asyncio.sleep(0)
        try:
            await budget.reserve(worst)
        except BudgetError:
            return
        observed.append(budget.spent + budget.reserved)
        for _ in range(turns):
            await asyncio.sleep(0)
        budget.settle(worst, worst * share)
        observed.append(budget.spent + budget.reserved)

    async def run() -> None:
        await asyncio.gather(*(call(*each) for each in calls))

    asyncio.run(run())
    assert all(total <= cap + 1e-9 for total in observed)
    assert budget.reserved == pytest.approx(0)


def test_a_call_waits_for_others_to_settle_rather_than_be_refused_for_what_they_may_cost() -> None:
    async def run() -> float:
        budget = Budget(1.0)
        await budget.reserve(0.9)
        waiting = asyncio.create_task(budget.reserve(0.9))
        await asyncio.sleep(0)
        assert not waiting.done()
        budget.settle(0.9, 0.05)
        await waiting
        return budget.reserved

    assert asyncio.run(run()) == pytest.approx(0.9)
