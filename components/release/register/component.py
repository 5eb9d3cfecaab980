"""The register stage as KFP components, one for each line; they decide nothing."""

from kfp import dsl

from components.image import CPU_IMAGE
from components.step_component import step_component


@step_component(CPU_IMAGE)
def register(
    before: dsl.Input[dsl.Artifact],
    evaluation: dsl.Input[dsl.Artifact],
    rl_model: dsl.Input[dsl.Model],
    report: dsl.Input[dsl.HTML],
    name: str,
    config: dict,  # type: ignore[type-arg]
    release: dsl.Output[dsl.Model],
    summary: dsl.Output[dsl.Markdown],
    lineage: dsl.Output[dsl.Artifact],
) -> None:
    """Make the rewriter's release: all that may serve, signed."""
    from components.release.register import stage

    inputs = {"evaluation": evaluation, "rl_model": rl_model, "report": report}
    stage.run_step("register", inputs, {"release": release}, {**config, "name": name}, before, summary, lineage)


@step_component(CPU_IMAGE)
def register_style(
    before: dsl.Input[dsl.Artifact],
    evaluation: dsl.Input[dsl.Artifact],
    style_model: dsl.Input[dsl.Model],
    report: dsl.Input[dsl.HTML],
    name: str,
    config: dict,  # type: ignore[type-arg]
    release: dsl.Output[dsl.Model],
    summary: dsl.Output[dsl.Markdown],
    lineage: dsl.Output[dsl.Artifact],
) -> None:
    """Make the style model's release: all that may serve, signed."""
    from components.release.register import stage

    inputs = {"evaluation": evaluation, "style_model": style_model, "report": report}
    stage.run_step("register", inputs, {"release": release}, {**config, "name": name}, before, summary, lineage)


@step_component(CPU_IMAGE)
def register_small(
    before: dsl.Input[dsl.Artifact],
    small_evaluation: dsl.Input[dsl.Artifact],
    student_model: dsl.Input[dsl.Model],
    small_report: dsl.Input[dsl.HTML],
    name: str,
    config: dict,  # type: ignore[type-arg]
    small_release: dsl.Output[dsl.Model],
    summary: dsl.Output[dsl.Markdown],
    lineage: dsl.Output[dsl.Artifact],
) -> None:
    """Make the smaller model's release: all that may serve, signed."""
    from components.release.register import stage

    inputs = {"small_evaluation": small_evaluation, "student_model": student_model, "small_report": small_report}
    outputs, settings = {"small_release": small_release}, {**config, "name": f"{name}-small"}
    stage.run_step("register_small", inputs, outputs, settings, before, summary, lineage)
