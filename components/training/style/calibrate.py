"""Temperature scaling (Guo et al. 2017): one number, fitted on dev, that calibrates the probabilities.

The head's weights are divided by this number, so that any code that loads the model gets calibrated answers, also the
plan's code.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qinglan.errors import TrainingError

FEWEST = 50
"""Lowest number of dev rows for a fit. With fewer, the temperature stays 1, since a fit would follow chance."""

LOWEST, HIGHEST = 0.25, 10.0


def fit_temperature(logits: NDArray[np.float64], labels: Sequence[int]) -> float:
    """Fit the temperature: the divisor of the logits that maximises the likelihood of the labels."""
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
    import torch

    count = model.config.num_labels
    linear = (module for module in model.modules() if isinstance(module, torch.nn.Linear))
    heads: list[Any] = [module for module in linear if module.out_features == count]
    if not heads:
        raise TrainingError(f"{type(model).__name__} has no linear head of {count} outputs.")
    with torch.no_grad():
        heads[-1].weight /= temperature
        if heads[-1].bias is not None:
            heads[-1].bias /= temperature
