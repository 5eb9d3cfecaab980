"""A KFP that runs is used again only if it is whole and beside this very cluster."""

import os
from pathlib import Path

import pytest

from qinglan.errors import ConfigError
from tests.cluster.plane.processes import Folder, Part, Record
from tests.kfp.backend.backend import broken_state, down, require_running, status
from tests.kfp.backend.cluster import running_cluster
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


def test_without_a_cluster_the_command_that_starts_one_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="make cluster"):
        running_cluster(tmp_path)


def test_nothing_runs_in_a_folder_that_nobody_used(tmp_path: Path) -> None:
    assert status(tmp_path) == ["No KFP here: make kfp starts one."]
    assert down(tmp_path / "none") == []


def test_a_run_without_a_back_end_is_refused_with_the_command_that_starts_one(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="make kfp"):
        require_running(Folder(tmp_path))
