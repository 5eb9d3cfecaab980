"""Memory of activations while a decoder trains.

With gradient checkpointing, every layer's input is held, and one layer at a time recomputes the values that its
gradients need. Without it, all layers hold these values. The bytes per token were counted on PyTorch's tensors;
tests/qinglan/sizing/test_activations.py counts them again.
"""

from typing import NamedTuple

from qinglan.sizing.ledger import Amount
from qinglan.sizing.shape import ModelShape

BF16, FP32 = 2, 4
"""Bytes of one activation, by its type."""


class LayerBytes(NamedTuple):
    """Bytes that one token takes in a layer, per unit of each of the layer's widths."""

    intermediate: int
    queries: int
    hidden: int
    keys: int
    rank: int


HELD = {
    (BF16, True): LayerBytes(8, 14, 18, 4, 14), (BF16, False): LayerBytes(8, 14, 16, 6, 0),
    (FP32, True): LayerBytes(18, 20, 11, 4, 26), (FP32, False): LayerBytes(16, 24, 25, 8, 0),
}  # fmt: skip
"""Bytes per token that a layer holds for its gradients. The keys are the bytes of an activation, and True if an
adapter is trained."""

COMPUTED = {True: LayerBytes(14, 14, 28, 4, 14), False: LayerBytes(10, 14, 18, 6, 0)}
"""Bytes per token in bf16 that a layer needs while its gradients are computed. The key is True if an adapter is
trained."""

SFT_LOSS = 14
"""Bytes per token and vocabulary entry while the loss of SFT is computed: logits in bf16 and fp32, softmax and
gradients."""

SFT_LOSS_FP32 = 16
"""Like SFT_LOSS, if everything is computed in fp32."""

PPO_LOSS = 18
"""Like SFT_LOSS, for PPO with verl, which also scales the logits and computes each token's entropy."""


def decoder_activations(shape: ModelShape, tokens: int, rank: int, loss: int) -> tuple[Amount, ...]:
    """Compute the activations of a decoder in bf16 with gradient checkpointing, at the larger of two moments:
    computing the loss, or computing one layer's gradients while the logits are still held. `rank` is the adapter's
    rank, 0 if all weights are trained."""
    layer = layer_gradients(shape, tokens, rank) + BF16 * tokens * shape.vocabulary
    at_loss = loss * tokens * shape.vocabulary
    name = "logits and loss" if at_loss > layer else "a layer's gradients"
    return layer_inputs(shape, tokens), Amount(name, max(at_loss, layer), "measured")


def classifier_activations(shape: ModelShape, tokens: int) -> tuple[Amount, ...]:
    """Compute the activations, with gradient checkpointing, of a model with a few outputs instead of the vocabulary,
    such as a critic."""
    layer = Amount("a layer's gradients", layer_gradients(shape, tokens, 0), "measured")
    return layer_inputs(shape, tokens), layer


def held_activations(shape: ModelShape, tokens: int, rank: int, width: int) -> Amount:
    """Compute the activations without gradient checkpointing: all layers hold the values that their gradients need.
    `width` is the number of bytes of an activation."""
    each = tokens * width_bytes(HELD[width, rank > 0], shape, rank)
    cast = BF16 * shape.adapter(rank) if width == BF16 else 0  # autocast makes the adapter bf16, once
    return Amount("activations", shape.layers * each + cast, "measured")


def layer_inputs(shape: ModelShape, tokens: int) -> Amount:
    return Amount("layers' inputs", shape.layers * shape.hidden * tokens * BF16, "measured")


def layer_gradients(shape: ModelShape, tokens: int, rank: int) -> int:
    """Compute the bytes of the layer whose gradients are being computed: its activations, and the gradients of its
    largest weight or, if `rank` is not 0, of its adapter."""
    weights = shape.adapter(rank) // shape.layers if rank else shape.hidden * shape.intermediate
    return tokens * width_bytes(COMPUTED[rank > 0], shape, rank) + BF16 * weights


def width_bytes(each: LayerBytes, shape: ModelShape, rank: int) -> int:
    return (
        each.intermediate * shape.intermediate + each.queries * shape.heads * shape.head_dim
        + each.hidden * shape.hidden + each.keys * shape.kv_heads * shape.head_dim + each.rank * rank
    )  # fmt: skip
