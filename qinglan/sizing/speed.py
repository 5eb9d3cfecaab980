"""Estimates steps and hours of a training from operations, bytes and a card's published speeds."""

from collections.abc import Iterable
from typing import NamedTuple

from qinglan.sizing.cards import Card
from qinglan.sizing.constants import GB, LAYER_SECONDS, LOAD_RATE, READ_SHARE, UTILISATION, Constant
from qinglan.sizing.shape import ModelShape


class Steps(NamedTuple):
    each: int
    """Steps of one pass over the rows."""

    total: int
    tests: int
    """Number of validations in the whole training."""


def steps_of_all(trainings: Iterable[Steps]) -> Steps:
    """Add up the steps of several trainings that run one after another. `each` is that of the first training, which
    makes the released model."""
    first, *siblings = trainings
    total = first.total + sum(steps.total for steps in siblings)
    return Steps(first.each, total, first.tests + sum(steps.tests for steps in siblings))


def training_operations(multiplied: int, tokens: float, all_weights: bool, checkpointing: bool = True) -> float:
    """Count the operations of a training. Each weight takes two operations per token in the forward pass, two more if
    gradient checkpointing repeats it, two for the inputs' gradients, and two for the weights' gradients if all
    weights are trained."""
    # The two operations are a multiplication and an addition. Attention's own products are left out: with rows of
    # some hundred tokens they are a few per cent.
    return 2 * (2 + checkpointing + all_weights) * multiplied * tokens


def forward_operations(multiplied: int, tokens: float) -> float:
    return 2 * multiplied * tokens


def compute_seconds(operations: float, card: Card, cards: int) -> float:
    return operations / (cards * card.teraflops * 1e12 * UTILISATION.value)


def training_seconds(
    operations: float, parts: float, layers: int, card: Card, cards: int, layer: Constant = LAYER_SECONDS
) -> float:
    """Estimate the seconds of a training: either the computing time of the cards or, if it is longer, the time that
    the processor takes to start every layer's kernels for each of the `parts` of batches. For small models and short
    rows the processor takes longer."""
    return max(compute_seconds(operations, card, cards), parts * layers * layer.value)


def crossing_seconds(size: float, cards: int, nodes: int, network: float) -> float:
    """Estimate the seconds until data that is divided among all cards has reached every machine, at `network` bytes
    per second between two machines; 0 on one machine.

    NCCL passes the data around a ring of cards, so all but one card's part enters each machine. This is the time to
    gather the data, and also the time to sum it up with one part of the sum on each card; a sum that all cards get
    takes twice as long. https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md#bus-bandwidth
    """
    return size * (cards - 1) / cards / network if nodes > 1 else 0.0


def generation_seconds(shape: ModelShape, tokens: float, width: int, card: Card, tensor_parallel: int) -> float:
    """Estimate the seconds to write these tokens one after another. Each token takes one reading of all weights."""
    # Writing is bound by memory, not by operations: https://arxiv.org/abs/2211.05102
    each = shape.parameters * width / tensor_parallel / (card.bandwidth * GB * READ_SHARE.value)
    return tokens * each


def load_seconds(size: float) -> float:
    return size / LOAD_RATE.value
