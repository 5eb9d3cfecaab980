"""Memory of AdamW's step beside weights, gradients and moments, counted by PyTorch; nothing is computed."""

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from components.training.ppo.gpus import ALL_AT_ONCE
from tests.processes.peak_memory import PeakMemory

WEIGHTS = 16


def step_peak(foreach: bool) -> float:
    """Peak of a step, in weights; the first, which makes the moments, is not counted."""
    with FakeTensorMode():
        weights = [torch.nn.Parameter(torch.zeros(64, 64)) for _ in range(WEIGHTS)]
        for weight in weights:
            weight.grad = torch.zeros_like(weight)
        optimizer = torch.optim.AdamW(weights, lr=1e-5, foreach=foreach)
        optimizer.step()
        moments = [tensor for state in optimizer.state.values() for tensor in state.values()]
        held = [*weights, *(weight.grad for weight in weights if weight.grad is not None), *moments]
        with PeakMemory(held) as memory:
            optimizer.step()
    return float(memory.peak) / (64 * 64 * 4)


@pytest.mark.slow
def test_as_verl_is_told_a_step_takes_no_other_copy_of_the_weights() -> None:
    """All at once, PyTorch's default on a GPU, takes one; `fit` has no room for it."""
    assert step_peak(foreach=True) == pytest.approx(WEIGHTS, rel=0.01)
    assert step_peak(foreach=ALL_AT_ONCE) < 4
