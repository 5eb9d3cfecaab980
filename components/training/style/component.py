"""The style model's training and its distillation as KFP components; they decide nothing."""

from kfp import dsl

from components.image import STYLE_IMAGE
from components.step_component import step_component


@step_component(STYLE_IMAGE)
def style(
    before: dsl.Input[dsl.Artifact],
    base_model: dsl.Input[dsl.Model],
    style_rows: dsl.Input[dsl.Dataset],
    monitor_url: str,
    config: dict,  # type: ignore[type-arg]
    style_model: dsl.Output[dsl.Model],
    style_log: dsl.Output[dsl.Artifact],
    style_curve: dsl.Output[dsl.HTML],
    style_metrics: dsl.Output[dsl.Metrics],
    lineage: dsl.Output[dsl.Artifact],
) -> None:
    """Train a calibrated classifier over the data's labels."""
    from pathlib import Path

    from components.step_figures import log_figures
    from components.training.style import stage
    from components.training.style.config import StyleConfig
    from qinglan.lineage.steps.record import recorded
    from qinglan.pages.curves import write_curve_page

    settings = StyleConfig.parse(config, "style")
    inputs = {"base_model": base_model, "style_rows": style_rows}
    outputs = {"style_model": style_model, "style_log": style_log, "style_curve": style_curve}
    with recorded("style", inputs, outputs, settings.model_dump(mode="json"), lineage, before) as step:
        counts = stage.train_style(
            Path(base_model.path),
            Path(style_rows.path),
            Path(style_model.path),
            Path(style_log.path),
            settings,
            monitor_url,
        )
        step.facts.update(counts._asdict())
        write_curve_page(Path(style_log.path), Path(style_curve.path))
    log_figures(style_metrics, counts._asdict(), stage.FIGURES)


@step_component(STYLE_IMAGE)
def distil(
    before: dsl.Input[dsl.Artifact],
    style_model: dsl.Input[dsl.Model],
    style_rows: dsl.Input[dsl.Dataset],
    monitor_url: str,
    config: dict,  # type: ignore[type-arg]
    student_model: dsl.Output[dsl.Model],
    distil_table: dsl.Output[dsl.Artifact],
    distil_log: dsl.Output[dsl.Artifact],
    summary: dsl.Output[dsl.Markdown],
    distil_metrics: dsl.Output[dsl.Metrics],
    lineage: dsl.Output[dsl.Artifact],
) -> None:
    """Distil the style model into a smaller one, with an int8 form for a CPU."""
    from pathlib import Path

    from components.step_figures import log_figures
    from components.step_summary import write_summary
    from components.training.style import distil as stage
    from components.training.style.config import DistilConfig
    from qinglan.lineage.steps.record import recorded

    settings = DistilConfig.parse(config, "distil")
    inputs = {"style_model": style_model, "style_rows": style_rows}
    outputs = {"student_model": student_model, "distil_table": distil_table, "distil_log": distil_log}
    with recorded("distil", inputs, outputs, settings.model_dump(mode="json"), lineage, before) as step:
        counts = stage.distil(
            Path(style_model.path),
            Path(style_rows.path),
            Path(student_model.path),
            Path(distil_table.path),
            Path(distil_log.path),
            settings,
            monitor_url,
        )
        step.facts.update(counts._asdict())
    write_summary(summary, stage.to_markdown(Path(distil_table.path)))
    log_figures(distil_metrics, counts._asdict(), stage.FIGURES)
