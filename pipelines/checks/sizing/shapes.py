"""Shapes of a profile's models, from local weights or the table of public models."""

from components.training.base.config import BaseConfig
from qinglan.models.base_weights import local_model_folder
from qinglan.sizing.shape import ModelShape, UncountedError, known_shapes, read_shape


def model_shape(model: str) -> ModelShape | None:
    """The shape of a folder or a public name; None if it is unknown, or no formula covers it."""
    folder = local_model_folder(model)
    try:
        return read_shape(folder) if folder else known_shapes().get(model)
    except UncountedError:
        return None


def base_shape(config: BaseConfig) -> ModelShape | None:
    """The base model's shape; None if it is unknown, and for a tiny model, which fits everywhere."""
    return model_shape(config.model) if config.source == "hub" else None
