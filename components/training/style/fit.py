"""Memory, disk and steps of the style model's training, on one card or a CPU, from its settings and the shape."""

import math

from components.training.style.config import DistilConfig, StyleConfig
from qinglan.sizing.activations import BF16, FP32, held_activations
from qinglan.sizing.constants import CPU_PROCESSES, CUDA_CONTEXT
from qinglan.sizing.ledger import Amount, Phase, constant, phase, with_fragments
from qinglan.sizing.shape import ModelShape
from qinglan.sizing.speed import Steps

LABELS = 5
"""Labels of the plan; a few more change nothing."""

TRAINED = 16
"""Bytes of a weight in fp32 with its gradient and AdamW's moments."""


def style_phases(config: StyleConfig, shape: ModelShape) -> tuple[Phase, ...]:
    """Bytes on the card, which computes in bf16, or in the memory of a machine without one; weights are in fp32."""
    trained = Amount("weights, gradients, AdamW", shape.classifier(LABELS, bias=False) * TRAINED)
    return (_step(config.device, shape, config.batch * config.max_length, trained),)


def distil_phases(config: DistilConfig, shape: ModelShape, max_length: int) -> tuple[Phase, ...]:
    """The same for the teacher, and a student with fewer layers that is trained."""
    student = shape._replace(layers=config.layers or max(1, shape.layers // 2))
    trained = Amount("the student's weights, gradients, AdamW", student.classifier(LABELS, bias=False) * TRAINED)
    teacher = Amount("the teacher", shape.classifier(LABELS, bias=False) * FP32)
    return (_step(config.device, student, config.batch * max_length, teacher, trained),)


def _step(device: str, shape: ModelShape, tokens: int, *weights: Amount) -> Phase:
    if device == "cpu":
        activations = held_activations(shape, tokens, 0, FP32)
        return phase("a step", *weights, activations, constant("processes", CPU_PROCESSES))
    activations = held_activations(shape, tokens, 0, BF16)
    return phase("a step", *with_fragments((*weights, activations)), constant("CUDA", CUDA_CONTEXT))


def disk(config: StyleConfig, shape: ModelShape) -> tuple[Amount, ...]:
    """Bytes of its folder: two checkpoints and the best, each with AdamW."""
    count = shape.classifier(LABELS, bias=False)
    return Amount("3 checkpoints", 3 * count * 3 * FP32), Amount("style model", count * FP32)


def steps(config: StyleConfig, rows: int) -> Steps:
    """Steps and validations over so many rows; some are shown once more without their answer."""
    each = math.ceil(rows * (1 + config.answer_dropped) / config.batch)
    return Steps(each, math.ceil(each * config.epochs), math.ceil(config.epochs * config.evaluations))
