from datetime import date
from typing import Any

import orjson
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from qinglan.llm.config import Price
from qinglan.llm.providers.prices import Usage, cost, estimate_tokens, read_usage, worst_cost

PRICE = Price(input=1.25, cached_input=0.125, output=10.0, as_of=date(2025, 8, 7))


def test_cached_tokens_cost_the_cached_price_and_reasoning_is_part_of_the_output() -> None:
    assert cost(PRICE, input=1_000_000, output=0) == pytest.approx(1.25)
    assert cost(PRICE, input=1_000_000, output=0, cached=1_000_000) == pytest.approx(0.125)
    assert cost(PRICE, input=0, output=1_000_000) == pytest.approx(10.0)


@pytest.mark.slow
@example(text="虾青素一天吃几次", spent=1.0, output=500, cached=0.0)
@given(text=st.text(), spent=st.floats(0, 1), output=st.integers(0, 500), cached=st.floats(0, 1))
def test_no_answer_costs_more_than_what_was_reserved_for_it(
    text: str, spent: float, output: int, cached: float
) -> None:
    request = orjson.dumps({"messages": [{"role": "user", "content": text}]}, option=orjson.OPT_SORT_KEYS)
    tokens = int(spent * len(request))  # no tokenizer makes more tokens of a text than it has bytes
    paid = cost(PRICE, input=tokens, output=output, cached=int(cached * tokens))
    assert paid <= worst_cost(PRICE, request, max_output=500) + 1e-12


@pytest.mark.parametrize(("text", "low", "high"), [("虾青素一天吃几次", 5, 8), ("astaxanthin", 2, 4), ("", 0, 0)])
def test_an_estimate_is_between_what_vocabularies_of_today_make_of_a_text(text: str, low: int, high: int) -> None:
    assert low <= estimate_tokens(text) <= high


@pytest.mark.parametrize(
    ("usage", "expected"),
    [
        ({"prompt_tokens": 9, "completion_tokens": 3}, Usage(9, 0, 3, 0)),
        (
            {
                "prompt_tokens": 9,
                "completion_tokens": 30,
                "prompt_tokens_details": {"cached_tokens": 4},
                "completion_tokens_details": {"reasoning_tokens": 20},
            },
            Usage(9, 4, 30, 20),
        ),
        ({"prompt_tokens": 9, "completion_tokens": 3, "prompt_tokens_details": None}, Usage(9, 0, 3, 0)),
        ({"prompt_tokens": 9, "prompt_tokens_details": {"cached_tokens": 10}, "completion_tokens": 1}, None),
        ({"prompt_tokens": "9", "completion_tokens": 3}, None),
        ({"prompt_tokens": -9, "completion_tokens": 3}, None),
        ({}, None),
        (None, None),
    ],
)
def test_usage_that_does_not_add_up_is_no_usage(usage: Any, expected: Usage | None) -> None:
    assert read_usage({"usage": usage}) == expected
