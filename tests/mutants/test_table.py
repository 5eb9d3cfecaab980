"""The table of faults fits the code that it is about."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.mutants.faults import FOLDER, ROOT, Fault, problems, read_faults

FAULT = Fault(
    "budget", "budget.py", "a <= b", "a < b", "The whole budget can be spent.", ("test_budget.py::test_all",)
)
Change = Callable[[Fault], Fault]


@pytest.mark.slow
def test_every_fault_can_be_put_in_and_names_tests_that_there_are() -> None:
    assert list(problems(read_faults(FOLDER), ROOT)) == []


def test_the_table_has_at_least_sixty_faults() -> None:
    assert len(read_faults(FOLDER)) >= 60


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda fault: fault._replace(find="c"), "occurs 0 times"),
        (lambda fault: fault._replace(find="a"), "occurs 2 times"),
        (lambda fault: fault._replace(replace="a <= b"), "are the same"),
        (lambda fault: fault._replace(file="gone.py"), "there is no file gone.py"),
        (lambda fault: fault._replace(tests=("gone.py",)), "there is no test"),
        (lambda fault: fault._replace(tests=("test_budget.py::test_gone",)), "there is no test"),
        (lambda fault: fault._replace(tests=()), "names no test"),
    ],
)  # fmt: skip
def test_a_useless_entry_of_the_table_is_named(tmp_path: Path, change: Change, message: str) -> None:
    (tmp_path / "budget.py").write_text("if a <= b:\n    a = 0\n")
    (tmp_path / "test_budget.py").write_text("def test_all() -> None: ...\n")

    [problem] = problems([change(FAULT)], tmp_path)

    assert message in problem
    assert list(problems([FAULT], tmp_path)) == []


def test_a_name_is_given_once(tmp_path: Path) -> None:
    (tmp_path / "budget.py").write_text("a <= b\n")
    (tmp_path / "test_budget.py").write_text("def test_all() -> None: ...\n")

    assert list(problems([FAULT, FAULT], tmp_path)) == ["budget: 2 faults have this name."]
