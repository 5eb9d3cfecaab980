"""Every seed is one that all generators take: numpy ends with an error at a negative one, after all is paid."""

from collections.abc import Iterator
from importlib import import_module

import pytest

from qinglan.config import Config
from qinglan.errors import ConfigError

for module in (
    "pipelines.lines.rewriter",
    "pipelines.lines.style",
    "standins.teacher.config",
    "examples.style_policy.config",
):
    import_module(module)  # each declares settings


def settings_with_a_seed(kind: type[Config] = Config) -> Iterator[type[Config]]:
    """All settings of the project that are imported and have a seed."""
    for settings in kind.__subclasses__():
        if "seed" in settings.model_fields:
            yield settings
        yield from settings_with_a_seed(settings)


SETTINGS = sorted(
    {kind for kind in settings_with_a_seed() if kind.__module__.split(".")[0] != "tests"}, key=lambda kind: str(kind)
)


def test_the_settings_with_a_seed_are_found() -> None:
    assert len(SETTINGS) >= 12


@pytest.mark.parametrize("kind", SETTINGS)
@pytest.mark.parametrize("seed", [-1, -(2**40), 2**31, 2**64, 0.5, "x", float("nan")])
def test_a_seed_that_a_generator_refuses_is_an_error_of_the_profile(kind: type[Config], seed: object) -> None:
    with pytest.raises(ConfigError, match="seed"):
        kind.parse({"seed": seed}, "profile")
