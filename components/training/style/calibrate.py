"""Temperature scaling: one number, fitted on dev, that calibrates the probabilities.

It goes into the head's weights, so that whoever loads the model, the plan's own code too, gets calibrated answers.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qinglan.errors import TrainingError

FEWEST = 50
"""Fewest rows of dev; with fewer the temperature stays 1, since a fit would follow chance."""

LOWEST, HIGHEST = 0.25, 10.0


def fit_temperature(logits: NDArray[np.float64], labels: Sequence[int]) -> float:
    """The divisor of the logits that makes the labels most likely."""
    from scipy.optimize import minimize_scalar
    from scipy.special import log_softmax

    if len(labels) < FEWEST:
        return 1.0
    at = np.arange(len(labels))

    def surprise(log_temperature: float) -> float:
        return -float(log_softmax(logits / np.exp(log_temperature), axis=-1)[at, list(labels)].mean())

    minimum = minimize_scalar(surprise, bounds=(np.log(LOWEST), np.log(HIGHEST)), method="bounded")
    return float(np.exp(minimum.x))


def divide_logits(model: Any, temperature: float) -> None:
    """Divide the head's weights by the temperature."""
    import torch

    head = _head(model)
    with torch.no_grad():
        head.weight /= temperature
        if head.bias is not None:
            head.bias /= temperature


def _head(model: Any) -> Any:
    import torch

    errors = [
        module
        for module in model.modules()
        if isinstance(module, torch.nn.Linear) and module.out_features == model.config.num_labels
    ]
    if not errors:
        raise TrainingError(f"{type(model).__name__} has no linear head of {model.config.num_labels} outputs.")
    return errors[-1]
