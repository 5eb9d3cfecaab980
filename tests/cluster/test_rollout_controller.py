"""The rollout's controller on a real control plane: promotions, rollbacks, and whatever happens meanwhile."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.cluster.prometheus import Server
from tests.cluster.rollout_world import House, World, house_of
from tests.cluster.servers import Minio


@pytest.fixture(scope="module")
def house(cluster: Any, s3: Minio, scraping: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    if not cluster.simulated:
        pytest.skip("makes cluster-wide policies: on a cluster of our own only")
    with house_of(cluster, s3, scraping, tmp_path_factory.mktemp("rollout")) as made:
        yield made


@pytest.fixture
def world(house: House) -> Iterator[World]:
    made = World(house)
    try:
        yield made
    finally:
        made.close()


def test_a_first_model_and_then_a_better_one_are_brought_to_everybody(world: World) -> None:
    world.controller()
    first = world.ended(world.start(world.stable))

    assert first["outcome"] == "Promoted" and "nothing was compared" in first["reasons"][0]
    assert world.traffic() == {world.stable.uri: 100}

    name = world.start(world.canary, 2)
    done = world.ended(name)

    assert done["outcome"] == "Promoted", done
    assert world.asked() == (world.canary.uri, None) and world.traffic() == {world.canary.uri: 100}
    told = [one["action"] for one in done["history"]]
    assert told == ["verify", "apply", "ready", "step", "pass", "step", "pass", "promote", "Promoted"], told
    assert {one["reason"] for one in world.events(name)} == {
        "Verify", "Apply", "Ready", "Step", "Pass", "Promote", "Promoted",
    }  # fmt: skip


def test_a_model_that_fails_more_is_taken_back_on_its_numbers(world: World) -> None:
    world.controller()
    world.serve(world.stable)
    world.players.fails[world.canary.version] = 0.3
    done = world.ended(world.start(world.canary, 2))

    assert done["outcome"] == "RolledBack", done
    assert done["reasons"][0].startswith("errors ") and "worse" in done["reasons"][0]
    assert world.asked() == (world.stable.uri, None) and world.traffic() == {world.stable.uri: 100}
