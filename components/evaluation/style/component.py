"""The style evaluation and its gate as KFP components; they decide nothing."""

from kfp import dsl

from components.image import CPU_IMAGE, STYLE_IMAGE


@dsl.component(base_image=STYLE_IMAGE, install_kfp_package=False)
def evaluate_style(
    before: dsl.Input[dsl.Artifact],
    style_rows: dsl.Input[dsl.Dataset],
    style_model: dsl.Input[dsl.Model],
    config: dict,  # type: ignore[type-arg]
    evaluation: dsl.Output[dsl.Artifact],
    predictions: dsl.Output[dsl.Dataset],
    blind_sample: dsl.Output[dsl.Dataset],
    blind_key: dsl.Output[dsl.Artifact],
    report: dsl.Output[dsl.HTML],
    summary: dsl.Output[dsl.Markdown],
    metrics: dsl.Output[dsl.Metrics],
    classification: dsl.Output[dsl.ClassificationMetrics],
    lineage: dsl.Output[dsl.Artifact],
) -> None:
    """The style model and a bag of characters on the same locked answers."""
    from pathlib import Path

    import orjson

    from components.evaluation.style import stage
    from components.evaluation.style.config import EvaluateStyleConfig
    from components.evaluation.style.report import to_markdown
    from qinglan.evaluation.evaluation_file import Outputs
    from qinglan.lineage.record import recorded

    settings = EvaluateStyleConfig.parse(config, "evaluate")
    inputs = {"style_rows": style_rows, "style_model": style_model}
    outputs = {
        "evaluation": evaluation,
        "predictions": predictions,
        "blind_sample": blind_sample,
        "blind_key": blind_key,
        "report": report,
    }
    with recorded("evaluate", inputs, outputs, settings.model_dump(mode="json"), lineage, before) as step:
        counts = stage.evaluate(
            Path(style_rows.path),
            Path(style_model.path),
            Outputs.of_step(outputs),
            settings,
        )
        step.facts.update(counts._asdict())
    result = orjson.loads(Path(evaluation.path).read_bytes())
    Path(summary.path).write_text(to_markdown(result), encoding="utf-8")
    classification.log_confusion_matrix(result["labels"], result["systems"]["model"]["confusion"])
    for name, value in {**counts._asdict(), **stage.headline_numbers(result)}.items():
        metrics.log_metric(name, value)


@dsl.component(base_image=CPU_IMAGE, install_kfp_package=False)
def gate_style(
    before: dsl.Input[dsl.Artifact],
    evaluation: dsl.Input[dsl.Artifact],
    config: dict,  # type: ignore[type-arg]
    decision: dsl.Output[dsl.Markdown],
    metrics: dsl.Output[dsl.Metrics],
    lineage: dsl.Output[dsl.Artifact],
) -> str:
    """`promote` or `hold`: what the graph branches on; the reasons are in the evaluation and in the step's record."""
    from components.gate_step import run_gate
    from qinglan.evaluation.kinds import STYLE

    return run_gate(STYLE, evaluation, config, before, decision, metrics, lineage)
