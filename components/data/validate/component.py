"""The validate stage as a KFP component; it decides nothing."""

from kfp import dsl

from components.image import CPU_IMAGE
from components.step_component import step_component


@step_component(CPU_IMAGE)
def validate(
    before: dsl.Input[dsl.Artifact],
    rewrites: dsl.Input[dsl.Dataset],
    knowledge_base: dsl.Input[dsl.Dataset],
    gateway_url: str,
    # Only KFP's cache compares this digest of models, prices and knowledge bases; the step does not read it.
    gateway_state: str,
    config: dict,  # type: ignore[type-arg]
    validated: dsl.Output[dsl.Dataset],
    validated_table: dsl.Output[dsl.Dataset],
    validate_quarantine: dsl.Output[dsl.Dataset],
    validate_metrics: dsl.Output[dsl.Metrics],
    lineage: dsl.Output[dsl.Artifact],
) -> None:
    """Search the knowledge base with each question and its rewrite, and accept the rewrite or say why not."""
    from pathlib import Path

    from components.data.validate import stage
    from components.data.validate.config import ValidateConfig
    from components.step_figures import log_figures
    from qinglan.lineage.steps.record import recorded
    from qinglan.lineage.steps.step_inputs import add_gateway_usage, add_prompts

    inputs = {"rewrites": rewrites, "knowledge_base": knowledge_base}
    settings = ValidateConfig.parse(config, "validate")
    outputs = {
        "validated": validated,
        "validated_table": validated_table,
        "validate_quarantine": validate_quarantine,
    }
    with recorded("validate", inputs, outputs, settings.model_dump(mode="json"), lineage, before) as step:
        validation = stage.validate(
            Path(rewrites.path),
            Path(knowledge_base.path),
            Path(validated.path),
            Path(validated_table.path),
            Path(validate_quarantine.path),
            settings,
            gateway_url,
        )
        step.facts.update(validation.facts())
        stage.check_teacher(validation.gain, settings)
        add_gateway_usage(step, "validate", gateway_url)
        add_prompts(step, "need", settings.need_prompt)
    log_figures(validate_metrics, validation.counts._asdict(), stage.FIGURES)
