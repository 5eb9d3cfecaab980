"""Steps and hours of a training, estimated from operations, bytes and a card's published speeds."""

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
    """Validations in all."""


def steps_of_all(trainings: Iterable[Steps]) -> Steps:
    """Steps of several trainings, one after another; a pass is that of the first, the released model's."""
    first, *siblings = trainings
    total = first.total + sum(steps.total for steps in siblings)
    return Steps(first.each, total, first.tests + sum(steps.tests for steps in siblings))


def training_operations(multiplied: int, tokens: float, all_weights: bool, checkpointing: bool = True) -> float:
    """Operations of a training step, two for each weight and token: forward, again with gradient checkpointing, the
    inputs' gradients, and the weights' where all are trained."""
    return 2 * (2 + checkpointing + all_weights) * multiplied * tokens


def forward_operations(multiplied: int, tokens: float) -> float:
    return 2 * multiplied * tokens


def compute_seconds(operations: float, card: Card, cards: int) -> float:
    return operations / (cards * card.teraflops * 1e12 * UTILISATION.value)


def training_seconds(
    operations: float, parts: float, layers: int, card: Card, cards: int, layer: Constant = LAYER_SECONDS
) -> float:
    """Seconds of computing, or of waiting for the processor to start each layer's kernels in each of the `parts` of
    batches, if those are more: small models and short rows wait."""
    return max(compute_seconds(operations, card, cards), parts * layers * layer.value)


def crossing_seconds(size: float, cards: int, nodes: int, network: float) -> float:
    """Seconds in which bytes that all cards share out reach every machine, at `network` bytes a second between two.

    NCCL passes them round a ring of cards, so that all but one card's part enters each machine, when they are
    gathered and when they are summed to one card each; a sum for all cards takes both.
    https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md#bus-bandwidth
    """
    return size * (cards - 1) / cards / network if nodes > 1 else 0.0


def generation_seconds(shape: ModelShape, tokens: float, width: int, card: Card, tensor_parallel: int) -> float:
    """Seconds to write these tokens one after another: each reads all weights once."""
    each = shape.parameters * width / tensor_parallel / (card.bandwidth * GB * READ_SHARE.value)
    return tokens * each


def load_seconds(size: float) -> float:
    return size / LOAD_RATE.value
