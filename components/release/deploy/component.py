"""The deploy stage as KFP components, one for each of a line's releases; they decide nothing."""

from kfp import dsl

from components.image import CPU_IMAGE
from components.step_component import step_component


@step_component(CPU_IMAGE)
def deploy(
    before: dsl.Input[dsl.Artifact],
    release: dsl.Input[dsl.Model],
    name: str,
    config: dict,  # type: ignore[type-arg]
    summary: dsl.Output[dsl.Markdown],
    lineage: dsl.Output[dsl.Artifact],
) -> None:
    """Make the ModelRollout that brings the release to its InferenceService."""
    from components.release.deploy.step import run_deploy

    run_deploy("deploy", {"release": release}, {**config, "name": name}, before, summary, lineage)


@step_component(CPU_IMAGE)
def deploy_small(
    before: dsl.Input[dsl.Artifact],
    small_release: dsl.Input[dsl.Model],
    name: str,
    config: dict,  # type: ignore[type-arg]
    summary: dsl.Output[dsl.Markdown],
    lineage: dsl.Output[dsl.Artifact],
) -> None:
    """Make the ModelRollout that brings the smaller model's release to its InferenceService."""
    from components.release.deploy.step import run_deploy

    settings = {**config, "name": f"{name}-small"}
    run_deploy("deploy_small", {"small_release": small_release}, settings, before, summary, lineage)
