"""Compute the steps of a training as ms-swift counts them, and the steps between two validations."""

from math import ceil

from components.training.sft.config import SftConfig


def training_steps(config: SftConfig, rows: int) -> int:
    """Return the optimizer steps of the whole training.

    Each process gets an equal share of the rows. The last batch and the last update of a pass may be smaller.
    """
    batches = ceil(rows // (config.nodes * config.processes) / config.batch)
    return ceil(config.epochs * max(1, ceil(batches / config.accumulation)))


def validation_interval(config: SftConfig, rows: int) -> int:
    """Return the steps between two validations. ms-swift also validates and saves at the last step."""
    return ceil(training_steps(config, rows) / config.validations)
