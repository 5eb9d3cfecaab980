"""A pod finds its place in what the real operator rendered, or fails before anything trains."""

import sys
from pathlib import Path

import pytest

from qinglan.errors import ConfigError
from qinglan.jobs.inside.node_info import (
    OPERATOR_VARIABLES,
    WORLD_SIZE_VARIABLE,
    read_node_info,
    torchrun_environment,
)
from tests.qinglan.jobs.rendered_env import SHAPES, inside, on_loopback, pod, rendered


@pytest.mark.parametrize(("nodes", "per_node"), SHAPES)
def test_each_pod_knows_its_place(nodes: int, per_node: int) -> None:
    result = [read_node_info(environment, nodes, per_node) for environment in rendered(nodes, per_node)]

    assert [where.rank for where in result] == list(range(nodes))
    assert {where.head for where in result} == {f"sft-{nodes}x{per_node}-master-0"}
    job = f"sft-{nodes}x{per_node}"
    assert [result[0].pod(rank) for rank in (0, 1, 2)] == [f"{job}-master-0", f"{job}-worker-0", f"{job}-worker-1"]


def test_ms_swift_is_told_of_its_nodes_and_of_nothing_else() -> None:
    second = {**rendered(2, 4)[1], "PATH": "/bin"}

    result = torchrun_environment(second, read_node_info(second, 2, 4))

    assert result == {
        "PATH": "/bin", "PYTHONUNBUFFERED": "1", "NNODES": "2", "NODE_RANK": "1", "NPROC_PER_NODE": "4",
        "MASTER_ADDR": "sft-2x4-master-0", "MASTER_PORT": "23456", WORLD_SIZE_VARIABLE: "8",
    }  # fmt: skip


def test_on_one_node_torchrun_finds_its_own_port() -> None:
    alone = rendered(1, 4)[0]

    result = torchrun_environment(alone, read_node_info(alone, 1, 4))

    assert result == {"PYTHONUNBUFFERED": "1", "NPROC_PER_NODE": "4", WORLD_SIZE_VARIABLE: "4"}
    assert torchrun_environment({}, read_node_info({}, 1, 2)) == {"NPROC_PER_NODE": "2", WORLD_SIZE_VARIABLE: "2"}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"WORLD_SIZE": "2"}, "WORLD_SIZE=2 instead of 8"),
        ({"PET_NNODES": "1"}, "PET_NNODES=1 instead of 2"),
        ({"PET_NPROC_PER_NODE": "auto"}, "PET_NPROC_PER_NODE=auto instead of 4"),
        ({"PET_NODE_RANK": "0"}, "PET_NODE_RANK=0 instead of 1"),
        ({"NPROC_PER_NODE": "8"}, "NPROC_PER_NODE=8 instead of 4"),
        ({WORLD_SIZE_VARIABLE: "4"}, f"{WORLD_SIZE_VARIABLE}=4 instead of 8"),
        ({"RANK": "2", "PET_NODE_RANK": "2"}, "RANK=2 is no rank of 2 nodes"),
        ({"MASTER_PORT": "auto"}, "MASTER_PORT=auto is no port"),
    ],
)
def test_an_environment_that_contradicts_what_was_asked_for_is_refused(changes: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        read_node_info({**rendered(2, 4)[1], **changes}, 2, 4)


@pytest.mark.parametrize("name", ["RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"])
def test_a_pod_without_its_place_says_which_variable_is_missing(name: str) -> None:
    environment = {key: value for key, value in rendered(2, 4)[0].items() if key != name}

    with pytest.raises(ConfigError, match=rf"among 2 nodes: {name} not set.*nprocPerNode 4"):
        read_node_info(environment, 2, 4)


@pytest.mark.slow
def test_nothing_is_run_in_a_pod_that_contradicts(tmp_path: Path) -> None:
    run = tmp_path / "ran"
    process = pod(inside("torchrun", 2, 8, ["touch", str(run)]), on_loopback(2, 4)[0], tmp_path / "log")

    assert process.wait(300) == ConfigError.exit_code
    assert not run.exists()
    assert "qinglan.errors.ConfigError: 2 nodes with 8 processes each" in (tmp_path / "log").read_text()


@pytest.mark.slow
def test_the_pod_becomes_the_training_and_ends_with_its_code(tmp_path: Path) -> None:
    program = "import os, sys; print(sorted(set(sys.argv[1].split(',')) & os.environ.keys())); sys.exit(41)"
    argv = [sys.executable, "-c", program, ",".join(OPERATOR_VARIABLES)]

    process = pod(inside("torchrun", 2, 1, argv), on_loopback(2, 1)[1], tmp_path / "log")

    assert process.wait(300) == 41
    assert (tmp_path / "log").read_text().splitlines()[-1] == "['MASTER_ADDR', 'MASTER_PORT']"
