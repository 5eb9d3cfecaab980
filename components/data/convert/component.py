"""The convert stage as a KFP component; it decides nothing."""

from kfp import dsl

from components.image import CPU_IMAGE
from components.step_component import step_component


@step_component(CPU_IMAGE)
def convert(
    before: dsl.Input[dsl.Artifact],
    validated: dsl.Input[dsl.Dataset],
    labels: dsl.Input[dsl.Dataset],
    config: dict,  # type: ignore[type-arg]
    chats: dsl.Output[dsl.Dataset],
    prompts: dsl.Output[dsl.Dataset],
    locked_test: dsl.Output[dsl.Dataset],
    left_out: dsl.Output[dsl.Dataset],
    convert_metrics: dsl.Output[dsl.Metrics],
    lineage: dsl.Output[dsl.Artifact],
) -> None:
    """Split the rewrites into chat rows for SFT, prompts for PPO, a locked test, and the rows left out."""
    from pathlib import Path

    from components.data.convert import stage
    from components.data.convert.config import ConvertConfig
    from components.step_figures import log_figures
    from qinglan.lineage.steps.record import recorded
    from qinglan.lineage.steps.step_inputs import add_student_prompts

    settings = ConvertConfig.parse(config, "convert")
    outputs = {"chats": chats, "prompts": prompts, "locked_test": locked_test, "left_out": left_out}
    inputs = {"validated": validated, "labels": labels}
    with recorded("convert", inputs, outputs, settings.model_dump(mode="json"), lineage, before) as step:
        counts, student_prompts = stage.convert(
            Path(validated.path),
            Path(chats.path),
            Path(prompts.path),
            Path(locked_test.path),
            Path(left_out.path),
            settings,
            Path(labels.path),
        )
        step.facts.update(counts._asdict())
        add_student_prompts(step, student_prompts)
    log_figures(convert_metrics, counts._asdict(), stage.FIGURES)
