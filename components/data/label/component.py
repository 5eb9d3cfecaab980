"""The label stage as a KFP component; it decides nothing."""

from kfp import dsl

from components.image import CPU_IMAGE
from components.step_component import step_component


@step_component(CPU_IMAGE)
def label(
    before: dsl.Input[dsl.Artifact],
    validated: dsl.Input[dsl.Dataset],
    gateway_url: str,
    # Only KFP's cache compares this digest of models, prices and knowledge bases; the step does not read it.
    gateway_state: str,
    config: dict,  # type: ignore[type-arg]
    labels: dsl.Output[dsl.Dataset],
    label_sheet: dsl.Output[dsl.Dataset],
    label_holes: dsl.Output[dsl.Dataset],
    label_report: dsl.Output[dsl.Artifact],
    label_metrics: dsl.Output[dsl.Metrics],
    lineage: dsl.Output[dsl.Artifact],
) -> None:
    """Let judges label the passages of rows without gold, and list the rows for which nothing relevant was found."""
    from pathlib import Path

    from components.data.label import stage
    from components.data.label.config import LabelConfig
    from components.step_figures import log_figures
    from qinglan.lineage.steps.record import recorded
    from qinglan.lineage.steps.step_inputs import add_file, add_gateway_usage, add_prompts

    settings = LabelConfig.parse(config, "label")
    outputs = {
        "labels": labels,
        "label_sheet": label_sheet,
        "label_holes": label_holes,
        "label_report": label_report,
    }
    with recorded(
        "label", {"validated": validated}, outputs, settings.model_dump(mode="json"), lineage, before
    ) as step:
        paths = stage.Outputs(**{name: Path(artifact.path) for name, artifact in outputs.items()})
        counts = stage.label(Path(validated.path), paths, settings, gateway_url)
        step.facts.update(counts._asdict())
        add_gateway_usage(step, "label", gateway_url)
        add_prompts(step, "label*")
        add_file(step, "corrections", settings.corrections)
    log_figures(label_metrics, counts._asdict(), stage.FIGURES)
