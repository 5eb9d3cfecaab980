"""No input makes a parser fail in other ways than it may: a fixed, short search. `make fuzz` searches longer."""

import resource
from pathlib import Path
from random import Random

import pytest
from hypothesis import Phase, given, note, settings
from hypothesis import strategies as st

from tests.fuzz.__main__ import main
from tests.fuzz.mutation import mutated
from tests.fuzz.planted import HIDDEN
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


@pytest.mark.slow
@pytest.mark.nightly
def test_a_fault_behind_a_row_of_conditions_is_found_and_printed_smallest(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Only the lines that an input reaches lead there: no mutation knows the hidden bytes."""
    with pytest.raises(SystemExit) as search:
        main(["planted", "--seconds", "300"], "tests.fuzz.planted", tmp_path)
    text = capsys.readouterr().out
    again = text.partition(" --input ")[2].splitlines()[0]
    with pytest.raises(SystemExit) as repetition:
        main(["planted", "--input", again], "tests.fuzz.planted", tmp_path)

    assert (search.value.code, repetition.value.code) == (1, 1)
    assert f"{len(HIDDEN)} bytes broke it: {HIDDEN!r}\nTraceback" in text
    assert "ZeroDivisionError" in capsys.readouterr().out


@pytest.mark.slow
def test_a_parser_that_nothing_broke_ends_well_with_its_figures(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as search:
        main(["whole", "--seconds", "1"], "tests.fuzz.planted", tmp_path)

    assert search.value.code == 0
    assert "inputs in 1 s; 1 places reached at first, 1 now; 1 inputs kept" in capsys.readouterr().out
