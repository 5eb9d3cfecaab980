"""A stage learns, before it clears anything away, whether a job of an earlier attempt would be followed on."""

from pathlib import Path

import pytest

from qinglan.jobs import Command
from qinglan.kubernetes.client import Api
from tests.cluster.jobs.job_world import ENDS_BADLY, ENDS_WELL, ONE_NODE, RUNS_ON, World, running
from tests.cluster.plane.cluster import Cluster


@pytest.fixture
def world(simulated: Cluster, namespace: str, tmp_path: Path) -> World:
    return World(Api(simulated.admin(), namespace), tmp_path, [])


def test_a_job_that_runs_is_attached_to(world: World) -> None:
    assert not world.runner(RUNS_ON).attaches(ONE_NODE), "there is none yet"

    with running(world, ONE_NODE):
        assert world.runner(RUNS_ON).attaches(ONE_NODE)
        other = ONE_NODE._replace(command=Command(["python", "other.py"]))
        assert not world.runner(RUNS_ON).attaches(other)


def test_a_job_that_ended_well_is_attached_to(world: World) -> None:
    world.run(ENDS_WELL)

    assert world.runner(ENDS_WELL).attaches(ONE_NODE)


def test_a_job_that_failed_is_begun_anew(world: World) -> None:
    world.run(ENDS_BADLY)

    assert not world.runner(ENDS_BADLY).attaches(ONE_NODE)
