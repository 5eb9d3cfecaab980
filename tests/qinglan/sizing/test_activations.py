"""The peak of a training step's tensors, counted by PyTorch, is what the formulas say."""

from collections.abc import Iterable
from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from qinglan.sizing.activations import (
    BF16,
    FP32,
    PPO_LOSS,
    SFT_LOSS,
    decoder_activations,
    held_activations,
)
from qinglan.sizing.ledger import Amount
from tests.processes.peak_memory import PeakMemory
from tests.qinglan.sizing.models import SMALL, causal_lm, small_shape, with_adapter

WIDE = {"hidden_size": 512, "intermediate_size": 1536, "num_attention_heads": 8, "head_dim": 64}
TOKENS = 512


def training_peak(settings: dict[str, Any], rank: int, checkpointing: bool = True, bf16: bool = True) -> int:
    """Bytes of a step above weights and gradients; nothing is computed and nothing takes memory."""
    model = causal_lm(settings, dtype=torch.bfloat16 if bf16 else torch.float32)
    model = with_adapter(model, rank) if rank else model
    with FakeTensorMode():
        _materialise(model)
        if checkpointing:
            model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
            model.enable_input_require_grads()
        model.train()
        ids = torch.zeros(2, TOKENS // 2, dtype=torch.long)
        gradients = [_zero_gradient(weight) for weight in model.parameters() if weight.requires_grad]
        with PeakMemory([*model.parameters(), *model.buffers(), *gradients, ids]) as memory:
            with torch.autocast("cpu", dtype=torch.bfloat16, enabled=bf16):
                out = model(input_ids=ids, labels=ids)
            out.loss.backward()
    return int(memory.peak)


def _zero_gradient(weight: torch.Tensor) -> torch.Tensor:
    weight.grad = torch.zeros_like(weight)
    return weight.grad


def _materialise(model: Any) -> None:
    """Tensors on a CPU in place of those on the meta device, for which PyTorch refuses some operations."""
    for module in model.modules():
        for name, weight in list(module.named_parameters(recurse=False)):
            data = torch.empty(weight.shape, dtype=weight.dtype)
            setattr(module, name, torch.nn.Parameter(data, requires_grad=weight.requires_grad))
        for name, buffer in list(module.named_buffers(recurse=False)):
            setattr(module, name, torch.empty(buffer.shape, dtype=buffer.dtype))


def total(amounts: Iterable[Amount]) -> float:
    return sum(amount.bytes for amount in amounts)


@pytest.mark.slow
@pytest.mark.parametrize("rank", [16, 0])
@pytest.mark.parametrize("vocabulary", [64, 20_000])
def test_a_step_of_sft_peaks_where_the_formula_says(rank: int, vocabulary: int) -> None:
    changes = WIDE | {"vocab_size": vocabulary}

    counted = training_peak(SMALL | changes, rank)

    assert total(decoder_activations(small_shape(**changes), TOKENS, rank, SFT_LOSS)) == pytest.approx(
        counted, rel=0.08
    )


@pytest.mark.slow
def test_activations_grow_with_the_layers_that_are_held() -> None:
    more = {"num_hidden_layers": 5}

    added = training_peak(SMALL | WIDE | more, 16) - training_peak(SMALL | WIDE, 16)

    shapes = [small_shape(**WIDE, **changes) for changes in (more, {})]
    expected = [total(decoder_activations(shape, TOKENS, 16, SFT_LOSS)) for shape in shapes]
    assert added == expected[0] - expected[1]


@pytest.mark.slow
@pytest.mark.parametrize("rank", [16, 0])
@pytest.mark.parametrize("width", [BF16, FP32])
def test_without_checkpointing_each_layer_holds_what_the_formula_says(rank: int, width: int) -> None:
    more = {"num_hidden_layers": 5}
    peaks = [training_peak(SMALL | WIDE | changes, rank, False, width == BF16) for changes in (more, {})]

    shapes = [small_shape(**WIDE, **changes) for changes in (more, {})]
    held = [held_activations(shape, TOKENS, rank, width).bytes for shape in shapes]
    assert held[0] - held[1] == pytest.approx(peaks[0] - peaks[1], rel=0.05)


@pytest.mark.slow
def test_verls_loss_with_entropy_takes_what_the_formula_says() -> None:
    tokens, vocabulary = 64, 5_000
    with FakeTensorMode():
        hidden = torch.zeros(tokens, 8, dtype=torch.bfloat16, requires_grad=True)
        output = torch.zeros(vocabulary, 8, dtype=torch.bfloat16)
        labels, temperature = torch.zeros(tokens, 1, dtype=torch.long), torch.ones(tokens, 1, dtype=torch.bfloat16)
        with PeakMemory([hidden, output, labels, temperature]) as memory:
            logits = (hidden @ output.T) / temperature
            # As verl: softmax runs in fp32 on a GPU, and each token's probability is taken row by row.
            share = torch.softmax(logits.float(), dim=-1)
            entropy = torch.logsumexp(logits, dim=-1) - (share * logits).sum(-1)
            rows = [
                torch.log_softmax(row.float(), dim=-1).gather(-1, at) for row, at in zip(logits, labels, strict=True)
            ]
            (torch.stack(rows).sum() + entropy.sum()).backward()  # type: ignore[no-untyped-call]

    assert memory.peak == pytest.approx(PPO_LOSS * tokens * vocabulary, rel=0.02)
