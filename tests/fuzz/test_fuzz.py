"""No input makes a parser fail in other ways than it may: a fixed, short search. `make fuzz` searches longer."""

import resource
from random import Random

import pytest
from hypothesis import Phase, given, note, settings
from hypothesis import strategies as st

from tests.fuzz.mutation import mutated
from tests.fuzz.target import MOST_MEMORY, Target, fault_of
from tests.fuzz.targets import targets

EXAMPLES = 60


@pytest.mark.parametrize("name", targets())
def test_a_good_input_is_taken(name: str) -> None:
    """Without which the others would only try what is refused at once."""
    target = targets()[name]
    for seed in target.seeds:
        if name != "envelope":  # its payload is an empty object
            target.parse(seed)


@pytest.mark.slow
@pytest.mark.parametrize("name", targets())
@settings(max_examples=EXAMPLES, derandomize=True, database=None, phases=[Phase.generate, Phase.shrink])
@given(random=st.randoms(use_true_random=False))
def test_no_input_makes_a_parser_fail_otherwise_than_in_words(name: str, random: Random) -> None:
    target = targets()[name]
    content = mutated(random, random.choice(target.seeds), target.seeds)
    note(repr(content))
    if fault := fault_of(target, content):
        raise fault


def test_an_input_that_takes_too_much_memory_is_a_fault_and_ends_no_machine() -> None:
    limits = resource.getrlimit(resource.RLIMIT_AS)

    target = Target(lambda content: bytearray(int(content)), ())
    faults = [fault_of(target, b"%d" % size) for size in (2 * MOST_MEMORY, 9)]

    assert [type(fault) for fault in faults] == [MemoryError, type(None)]
    assert resource.getrlimit(resource.RLIMIT_AS) == limits
