"""A KFP that runs is used again only if it is whole and beside this very cluster."""

import os
from pathlib import Path

import pytest

from tests.cluster.plane.processes import Part, Record
from tests.kfp.backend.backend import broken_state
from tests.kfp.backend.objects import Store

STORE = Store("127.0.0.1:9000", "key", "secret")


def record(name: str, runs: bool = True, **settings: str) -> Record:
    """This very process stands for a part that runs."""
    executable = str(Path("/proc/self/exe").readlink())
    born = int(Path("/proc/self/stat").read_text().rpartition(") ")[2].split()[19])
    return Record(Part(name, executable, [], settings), executable, os.getpid(), born if runs else born + 1)


WHOLE = {"OBJECTSTORECONFIG_ACCESSKEY": "key"}


@pytest.mark.parametrize(
    ("parts", "up", "problem"),
    [
        ([("mlmd", True, {}), ("apiserver", True, WHOLE)], True, ""),
        ([("mlmd", False, {}), ("apiserver", True, WHOLE)], True, "mlmd ended"),
        ([("mlmd", True, {})], False, "before it was up"),
        ([("apiserver", True, {"OBJECTSTORECONFIG_ACCESSKEY": "another"})], True, "cluster"),
    ],
)
def test_a_kfp_that_is_not_whole_says_why(
    parts: list[tuple[str, bool, dict[str, str]]], up: bool, problem: str
) -> None:
    each = [record(name, runs, **settings) for name, runs, settings in parts]

    state = broken_state(each, up, STORE)

    assert problem in state
    assert bool(state) is bool(problem)
