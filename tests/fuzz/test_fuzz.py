"""No input makes a parser fail in other ways than it may: a fixed, short search. `make fuzz` searches longer."""

import contextlib
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from tests.fuzz.mutation import mutated
from tests.fuzz.targets import targets

EXAMPLES = 60


@pytest.mark.parametrize("name", targets())
def test_a_good_input_is_taken(name: str) -> None:
    """Without which the others would only try what is refused at once."""
    target = targets()[name]
    for seed in target.seeds:
        if name != "envelope":  # its payload is an empty object
            target.parse(seed)


@pytest.mark.parametrize("name", targets())
@settings(max_examples=EXAMPLES, derandomize=True, database=None, phases=[Phase.generate, Phase.shrink])
@given(data=st.data())
def test_no_input_makes_a_parser_fail_otherwise_than_in_words(name: str, data: Any) -> None:
    target = targets()[name]
    content = data.draw(mutated(target.seeds))
    with contextlib.suppress(*target.refuses):
        target.parse(content)
