"""The preparation of labelled answers as a KFP component; it decides nothing."""

from kfp import dsl

from components.image import CPU_IMAGE
from components.step_component import step_component


@step_component(CPU_IMAGE)
def prepare(
    labelled: dsl.Input[dsl.Dataset],
    config: dict,  # type: ignore[type-arg]
    style_rows: dsl.Output[dsl.Dataset],
    distribution: dsl.Output[dsl.HTML],
    prepare_metrics: dsl.Output[dsl.Metrics],
    lineage: dsl.Output[dsl.Artifact],
) -> None:
    """Split the labelled answers, alike ones together."""
    from pathlib import Path

    from components.data.style import stage
    from components.data.style.config import PrepareStyleConfig
    from components.step_figures import log_figures
    from qinglan.lineage.steps.record import recorded

    settings = PrepareStyleConfig.parse(config, "prepare")
    outputs = {"style_rows": style_rows, "distribution": distribution}
    with recorded("prepare", {"labelled": labelled}, outputs, settings.model_dump(mode="json"), lineage) as step:
        counts = stage.prepare(Path(labelled.path), Path(style_rows.path), Path(distribution.path), settings)
        step.facts.update(counts._asdict())
    log_figures(prepare_metrics, counts._asdict(), stage.FIGURES)
