"""Memory, disk and steps of the style model's training, on one card or a CPU, from its settings and the shape."""

import math

from components.training.style.config import DistilConfig, StyleConfig
from qinglan.sizing.activations import BF16, FP32, classifier_activations, held_activations
from qinglan.sizing.constants import CPU_PROCESSES, CUDA_CONTEXT
from qinglan.sizing.ledger import Amount, Phase, constant, phase, with_fragments
from qinglan.sizing.shape import ModelShape
from qinglan.sizing.speed import Steps

LABELS = 5
"""Labels of the plan; a few more change nothing."""

TRAINED = 16
"""Bytes of a weight in fp32 with its gradient and AdamW's moments."""


def style_phases(config: StyleConfig, shape: ModelShape) -> tuple[Phase, ...]:
    """Bytes on the card, which computes in bf16, or in the memory of a machine without one.

    Weights that are trained are in fp32; under an adapter a card holds the base in bf16.
    """
    count, tokens = shape.classifier(LABELS, bias=False), config.batch * config.max_length
    if not config.lora_rank:
        trained = Amount("weights, gradients, AdamW", count * TRAINED)
        return (_step(config, shape, tokens, 0, trained),)
    base = Amount("base weights", count * (BF16 if config.device == "cuda" else FP32))
    adapter = Amount("adapter, gradients, AdamW", shape.adapter(config.lora_rank) * TRAINED)
    return (_step(config, shape, tokens, config.lora_rank, base, adapter),)


def distil_phases(config: DistilConfig, shape: ModelShape, max_length: int) -> tuple[Phase, ...]:
    """The same for the teacher, and a student with fewer layers that is trained."""
    student = shape._replace(layers=config.layers or max(1, shape.layers // 2))
    trained = Amount("the student's weights, gradients, AdamW", student.classifier(LABELS, bias=False) * TRAINED)
    teacher = Amount("the teacher", shape.classifier(LABELS, bias=False) * FP32)
    return (_step(config, student, config.batch * max_length, 0, teacher, trained),)


def _step(config: StyleConfig | DistilConfig, shape: ModelShape, tokens: int, rank: int, *weights: Amount) -> Phase:
    """On a CPU all is computed in fp32, and checkpointing is counted as on a card."""
    width = BF16 if config.device == "cuda" else FP32
    activations = (held_activations(shape, tokens, rank, width),)
    if config.checkpointing:
        activations = classifier_activations(shape, tokens, rank)
    if config.device == "cpu":
        return phase("a step", *weights, *activations, constant("processes", CPU_PROCESSES))
    return phase("a step", *with_fragments((*weights, *activations)), constant("CUDA", CUDA_CONTEXT))


def disk(config: StyleConfig, shape: ModelShape) -> tuple[Amount, ...]:
    """Bytes of its folder: two checkpoints and the best, each with AdamW."""
    count = shape.classifier(LABELS, bias=False)
    trained = shape.adapter(config.lora_rank) if config.lora_rank else count
    return Amount("3 checkpoints", 3 * trained * 3 * FP32), Amount("style model", count * FP32)


def steps(config: StyleConfig, rows: int) -> Steps:
    """Steps and validations over so many rows; some are shown once more without their answer."""
    each = math.ceil(rows * (1 + config.answer_dropped) / (config.batch * config.accumulation))
    return Steps(each, math.ceil(each * config.epochs), math.ceil(config.epochs * config.evaluations))
