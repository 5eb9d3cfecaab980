"""Checkpoints on disk are as large as the formulas say."""

from pathlib import Path
from typing import Any

import pytest
import torch

from components.training.ppo import fit as ppo
from components.training.ppo.config import Hardware, Lora, PpoConfig
from components.training.sft import fit as sft
from components.training.sft.config import SftConfig
from tests.qinglan.sizing.models import SMALL, causal_lm, small_shape, with_adapter

WIDE = SMALL | {"hidden_size": 256, "intermediate_size": 768, "vocab_size": 2000}
SHAPE = small_shape(hidden_size=256, intermediate_size=768, vocab_size=2000)


def trained(model: Any) -> torch.optim.Optimizer:
    optimizer = torch.optim.AdamW([weight for weight in model.parameters() if weight.requires_grad])
    ids = torch.zeros(1, 4, dtype=torch.long)
    model(input_ids=ids, labels=ids).loss.backward()
    optimizer.step()
    return optimizer


def size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.iterdir())


@pytest.mark.slow
@pytest.mark.parametrize("tuner", ["lora", "full"])
def test_a_checkpoint_of_sft_is_as_large_as_what_the_trainer_saves(tuner: Any, tmp_path: Path) -> None:
    """The Trainer saves the model by save_pretrained, and the optimizer by torch.save."""
    model = causal_lm(WIDE, "cpu", torch.bfloat16)
    model = with_adapter(model, 16) if tuner == "lora" else model
    optimizer = trained(model)
    model.save_pretrained(tmp_path, **({"save_embedding_layers": False} if tuner == "lora" else {}))
    torch.save(optimizer.state_dict(), tmp_path / "optimizer.pt")

    config = SftConfig(tuner=tuner)
    assert size(tmp_path) == pytest.approx(sft.checkpoint_bytes(config, SHAPE), rel=0.1)


@pytest.mark.slow
@pytest.mark.parametrize("rank", [16, 0])
def test_a_checkpoint_of_verl_is_trained_weights_and_adamw_in_fp32(rank: int, tmp_path: Path) -> None:
    """verl saves both by torch.save; of an actor with an adapter the adapter alone."""
    model = causal_lm(WIDE, "cpu")
    model = with_adapter(model, rank) if rank else model
    optimizer = trained(model)
    weights = {name: weight.detach() for name, weight in model.named_parameters() if weight.requires_grad}
    torch.save(weights, tmp_path / "model.pt")
    torch.save(optimizer.state_dict(), tmp_path / "optim.pt")

    config = PpoConfig(lora=Lora(rank=rank), hardware=Hardware(per_node=1, tensor_parallel=1))
    assert size(tmp_path) == pytest.approx(ppo.checkpoint_bytes(config, SHAPE, None)[0], rel=0.1)
