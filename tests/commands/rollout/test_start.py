"""Defaults of a rollout that is begun by hand."""

import pytest

from commands.rollout.start import build_deploy_config


@pytest.mark.parametrize("name, service, runtime", [
    ("fivedoctors/rewriter", "rewriter", "qinglan-rewriter-cpu"), ("house/style", "style", "qinglan-style"),
    ("house/style-small", "style-small", "qinglan-style-onnx"),
])  # fmt: skip
def test_each_kind_of_model_goes_to_its_own_service(name: str, service: str, runtime: str) -> None:
    config = build_deploy_config({}, name, "s3://qinglan/house", "qinglan", None)

    assert (config.service, config.runtime, config.format) == (
        service,
        runtime,
        runtime.removesuffix("-cpu").removesuffix("-onnx"),
    )


def test_explicit_settings_replace_the_defaults_of_a_rollout() -> None:
    config = build_deploy_config(
        {"service": "style-two", "rollout": {}}, "house/style", "s3://qinglan/house", "qinglan", None
    )

    assert (config.service, config.runtime, config.rollout) == ("style-two", "qinglan-style", {})
