"""A card holds the share of a model that PyTorch's FSDP2 gives it, without the cards."""

from collections.abc import Iterator

import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.testing._internal.distributed.fake_pg import FakeStore

from components.training.ppo.config import Hardware, Lora, PpoConfig
from components.training.ppo.fit import shards
from tests.qinglan.sizing.models import SMALL, causal_lm, small_shape, with_adapter

CARDS = 4


@pytest.fixture
def world() -> Iterator[None]:
    """The first of four processes; the others are not there, and nothing is sent."""
    dist.init_process_group("fake", rank=0, world_size=CARDS, store=FakeStore())
    yield
    dist.destroy_process_group()


@pytest.mark.slow
@pytest.mark.parametrize("rank", [8, 0])
def test_fsdp2_gives_each_card_what_the_formula_says(world: None, rank: int) -> None:
    model = causal_lm(SMALL, "cpu")
    model = with_adapter(model, rank) if rank else model
    for layer in [module for module in model.modules() if type(module).__name__ == "Qwen3DecoderLayer"]:
        fully_shard(layer, mesh=init_device_mesh("cpu", (CARDS,)))
    fully_shard(model, mesh=init_device_mesh("cpu", (CARDS,)))

    here = sum(weight.to_local().nbytes for weight in model.parameters() if isinstance(weight, DTensor))

    config = PpoConfig(lora=Lora(rank=rank), hardware=Hardware(per_node=CARDS, dtype="float32"))
    parts = shards(config, small_shape(), None)
    assert here == pytest.approx(parts.actor.bytes + parts.adapter.bytes, rel=0.001)
    assert {weight.dtype for weight in model.parameters()} == {torch.float32}
