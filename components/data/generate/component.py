"""The generate stage as a KFP component; it decides nothing."""

from kfp import dsl

from components.image import CPU_IMAGE
from components.step_component import step_component


@step_component(CPU_IMAGE)
def generate(
    questions: dsl.Input[dsl.Dataset],
    gateway_url: str,
    # Only KFP's cache compares this digest of models, prices and knowledge bases; the step does not read it.
    gateway_state: str,
    config: dict,  # type: ignore[type-arg]
    rewrites: dsl.Output[dsl.Dataset],
    rewrites_table: dsl.Output[dsl.Dataset],
    generate_quarantine: dsl.Output[dsl.Dataset],
    generate_metrics: dsl.Output[dsl.Metrics],
    lineage: dsl.Output[dsl.Artifact],
) -> None:
    """Rewrite each question with the teacher; a failed call becomes a quarantined row."""
    from pathlib import Path

    from components.data.generate import stage
    from components.data.generate.config import GenerateConfig
    from components.step_figures import log_figures
    from qinglan.lineage.steps.record import recorded
    from qinglan.lineage.steps.step_inputs import add_gateway_usage, add_prompts

    settings = GenerateConfig.parse(config, "generate")
    outputs = {
        "rewrites": rewrites,
        "rewrites_table": rewrites_table,
        "generate_quarantine": generate_quarantine,
    }
    with recorded("generate", {"questions": questions}, outputs, settings.model_dump(mode="json"), lineage) as step:
        counts = stage.generate(
            Path(questions.path),
            Path(rewrites.path),
            Path(rewrites_table.path),
            Path(generate_quarantine.path),
            settings,
            gateway_url,
        )
        step.facts.update(counts._asdict())
        add_gateway_usage(step, "generate", gateway_url)
        add_prompts(step, "teacher.*", settings.system_prompt)
    log_figures(generate_metrics, counts._asdict(), stage.FIGURES)
