"""Estimate memory, disk and steps of the style model's training, on one card or a CPU, from settings and shape."""

import math

from components.training.style.config import DistilConfig, StyleConfig
from qinglan.sizing.activations import BF16, FP32, held_activations, layer_gradients, layer_inputs
from qinglan.sizing.constants import CPU_PROCESSES, CUDA_CONTEXT
from qinglan.sizing.ledger import Amount, Phase, constant, phase, with_fragments
from qinglan.sizing.shape import ModelShape
from qinglan.sizing.speed import Steps

LABELS = 5
"""Number of labels in the plan; a few more labels hardly change the memory."""

TRAINED = 16
"""Bytes of a weight in fp32 with its gradient and AdamW's moments."""


def style_phases(config: StyleConfig, shape: ModelShape) -> tuple[Phase, ...]:
    """Return the bytes in the memory of the card, which computes in bf16, or of a machine without a card, which
    computes in fp32. Trained weights are fp32."""
    tokens = config.batch * config.max_length
    activations = _activations(config.device, shape, tokens, config.checkpointing, config.lora_rank)
    weights = [Amount("weights, gradients, AdamW", _learned(config, shape) * TRAINED)]
    if config.lora_rank:
        width = BF16 if config.device == "cuda" else FP32
        weights.insert(0, Amount("frozen weights", shape.body * width))
    return (_step(config.device, *weights, *activations),)


def _learned(config: StyleConfig, shape: ModelShape) -> int:
    head = LABELS * shape.hidden
    return shape.adapter(config.lora_rank) + head if config.lora_rank else shape.body + head


def distil_phases(config: DistilConfig, shape: ModelShape, max_length: int) -> tuple[Phase, ...]:
    student = shape._replace(layers=config.layers or max(1, shape.layers // 2))
    trained = Amount("the student's weights, gradients, AdamW", student.classifier(LABELS, bias=False) * TRAINED)
    teacher = Amount("the teacher", shape.classifier(LABELS, bias=False) * FP32)
    activations = _activations(config.device, student, config.batch * max_length, config.checkpointing, 0)
    return (_step(config.device, teacher, trained, *activations),)


def _activations(device: str, shape: ModelShape, tokens: int, again: bool, rank: int) -> tuple[Amount, ...]:
    """Return the bytes of activations. `again` means gradient checkpointing; this estimate ignores it on a CPU."""
    if device == "cuda" and again:
        each = Amount("a layer's gradients", layer_gradients(shape, tokens, rank), "measured")
        return layer_inputs(shape, tokens), each
    return (held_activations(shape, tokens, rank, BF16 if device == "cuda" else FP32),)


def _step(device: str, *held: Amount) -> Phase:
    if device == "cpu":
        return phase("a step", *held, constant("processes", CPU_PROCESSES))
    return phase("a step", *with_fragments(held), constant("CUDA", CUDA_CONTEXT))


def disk(config: StyleConfig, shape: ModelShape) -> tuple[Amount, ...]:
    """Return the bytes on disk: two checkpoints and the best one, with AdamW's moments, and the finished model."""
    whole = shape.classifier(LABELS, bias=False)
    return Amount("3 checkpoints", 3 * _learned(config, shape) * 3 * FP32), Amount("style model", whole * FP32)


def steps(config: StyleConfig, rows: int) -> Steps:
    """Return the steps and validations over these rows, of which some are repeated without their answer."""
    each = math.ceil(rows * (1 + config.answer_dropped) / (config.batch * config.accumulation))
    return Steps(each, math.ceil(each * config.epochs), math.ceil(config.epochs * config.evaluations))
