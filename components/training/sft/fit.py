"""Estimate memory, disk, steps and hours of SFT, from its settings and the model's shape."""

import math

from components.training.sft.config import SftConfig
from components.training.sft.steps import training_steps, validation_interval
from qinglan.sizing.activations import (
    BF16,
    FP32,
    SFT_LOSS,
    SFT_LOSS_FP32,
    decoder_activations,
    held_activations,
)
from qinglan.sizing.cards import Card
from qinglan.sizing.constants import CPU_PROCESSES, CUDA_CONTEXT, LIVE_PARAMETERS, NCCL, PROCESS
from qinglan.sizing.ledger import Amount, Phase, constant, phase, with_fragments
from qinglan.sizing.shape import ModelShape
from qinglan.sizing.speed import (
    Steps,
    compute_seconds,
    crossing_seconds,
    forward_operations,
    load_seconds,
    training_operations,
    training_seconds,
)

MOMENTS = 8
"""Bytes per weight of AdamW's two moments in fp32."""

WIDTHS = {"bfloat16": 2, "float16": 2, "float32": 4}
"""Bytes per number, by `dtype`."""


def card_phases(config: SftConfig, shape: ModelShape) -> tuple[Phase, ...]:
    """Return the bytes on each card, with rows of the greatest length that the settings allow."""
    tokens = config.batch * config.max_length
    if config.checkpointing:
        activations = decoder_activations(shape, tokens, _rank(config), SFT_LOSS)
    else:
        loss = Amount("logits and loss", SFT_LOSS * tokens * shape.vocabulary, "measured")
        activations = (held_activations(shape, tokens, _rank(config), BF16), loss)
    between = [constant("NCCL", NCCL)] if _cards(config) > 1 else []
    trained = with_fragments((*weights(config, shape), *activations))
    return (phase("a step", *trained, constant("CUDA", CUDA_CONTEXT), *between),)


def weights(config: SftConfig, shape: ModelShape) -> tuple[Amount, ...]:
    """Return the bytes of weights, gradients and optimizer on each card. The ZeRO stage decides what is sharded.

    ZeRO: https://www.deepspeed.ai/tutorials/zero/
    """
    cards, width, zero3 = _cards(config), WIDTHS[config.dtype], config.deepspeed == "zero3"
    sharded = cards if config.deepspeed else 1
    whole = shape.parameters * width / (cards if zero3 else 1)
    if config.tuner == "lora":
        adapter = shape.adapter(config.lora_rank)
        # DistributedDataParallel copies the gradients to buckets, which it sums over the cards.
        buckets = FP32 * adapter if cards > 1 and not config.deepspeed else 0
        return (
            Amount("base weights", whole),
            Amount("adapter and its gradients", adapter * 2 * FP32),
            Amount("AdamW", adapter * MOMENTS / sharded),
            Amount("gradients to be summed", buckets),
        )
    # With ZeRO, moments and a copy of the weights are fp32. Without it, moments have the precision of the weights.
    moments = MOMENTS if config.deepspeed else 2 * width
    copy = FP32 if config.deepspeed and width < FP32 else 0
    gathered = [constant("gathered layers", LIVE_PARAMETERS, width)] if zero3 else []
    return (
        Amount("weights", whole),
        Amount("gradients", shape.parameters * width / sharded),
        Amount("AdamW", shape.parameters * moments / sharded),
        Amount("fp32 copy of the weights", shape.parameters * copy / sharded),
        *gathered,
    )


def host_phases(config: SftConfig, shape: ModelShape) -> tuple[Phase, ...]:
    """Return the bytes of each machine's memory, in which a whole model must fit to be merged or saved."""
    model = Amount("the whole model", shape.parameters * WIDTHS[config.dtype])
    if config.device == "cuda":
        return (phase("merge or save", model, constant("processes", PROCESS, config.gpus)),)
    processes, tokens = constant("processes", CPU_PROCESSES), config.batch * config.max_length
    # On a CPU there is no gradient checkpointing, so all activations are kept, in fp32.
    loss = Amount("logits and loss", SFT_LOSS_FP32 * tokens * shape.vocabulary, "measured")
    activations = held_activations(shape, tokens, _rank(config), FP32), loss
    return phase("a step", *weights(config, shape), *activations, processes), phase("merge or save", model, processes)


def checkpoint_bytes(config: SftConfig, shape: ModelShape) -> float:
    if config.tuner == "lora":
        return shape.adapter(config.lora_rank) * (FP32 + MOMENTS)
    width = WIDTHS[config.dtype]
    return shape.parameters * (width + (FP32 + MOMENTS if config.deepspeed else 2 * width))


def disk(config: SftConfig, shape: ModelShape) -> tuple[Amount, ...]:
    """Return the bytes of the training's folder. The best checkpoint stays beside the newest ones."""
    count = config.keep_checkpoints + 1
    return (
        Amount(f"{count} checkpoints of SFT", count * checkpoint_bytes(config, shape)),
        Amount("merged SFT model", shape.parameters * WIDTHS[config.dtype]),
    )


def steps(config: SftConfig, rows: int) -> Steps:
    total = training_steps(config, rows)
    return Steps(math.ceil(total / config.epochs), total, math.ceil(total / validation_interval(config, rows)))


def seconds(config: SftConfig, shape: ModelShape, rows: int, row_tokens: float, card: Card, network: float) -> float:
    """Return the seconds of loading, training and validations, with an eighth of `rows` as validation rows.

    Training takes at least as long as the network needs for the exchanged bytes, at `network` bytes a second.
    """
    multiplied, tokens = shape.multiplied + shape.embedding, rows * row_tokens
    trained = training_operations(multiplied, config.epochs * tokens, config.tuner == "full", config.checkpointing)
    validated = forward_operations(multiplied, steps(config, rows).tests * tokens / 8)
    cards = _cards(config)
    parts = config.epochs * rows / (config.batch * cards)
    crossing = crossing_seconds(
        crossing_bytes(config, shape, parts, steps(config, rows).total), cards, config.nodes, network
    )
    learning = max(training_seconds(trained, parts, shape.layers, card, cards), crossing)
    return 2 * load_seconds(shape.parameters * 2) + learning + compute_seconds(validated, card, cards)


def crossing_bytes(config: SftConfig, shape: ModelShape, parts: float, updates: int) -> float:
    """Return the bytes that the cards exchange in the whole training: gradients at each update. With zero3 they
    exchange weights for both passes, and gradients, in each part of a batch."""
    trained = shape.adapter(config.lora_rank) if config.tuner == "lora" else shape.parameters
    width = FP32 if config.tuner == "lora" else WIDTHS[config.dtype]
    if config.deepspeed == "zero3":
        return parts * (2 * shape.parameters * WIDTHS[config.dtype] + trained * width)
    return updates * 2 * trained * width


def _rank(config: SftConfig) -> int:
    return config.lora_rank if config.tuner == "lora" else 0


def _cards(config: SftConfig) -> int:
    return config.processes * config.nodes
