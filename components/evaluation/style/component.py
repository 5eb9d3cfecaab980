"""The style evaluation and its gate as KFP components; they decide nothing."""

from kfp import dsl

from components.image import CPU_IMAGE, STYLE_IMAGE
from components.step_component import step_component


@step_component(STYLE_IMAGE)
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
    evaluation_metrics: dsl.Output[dsl.Metrics],
    classification: dsl.Output[dsl.ClassificationMetrics],
    lineage: dsl.Output[dsl.Artifact],
) -> None:
    """Compare the style model and a bag of characters on the same locked answers."""
    from components.evaluation.style.step import run_evaluation

    inputs = {"style_rows": style_rows, "style_model": style_model}
    outputs = {
        "evaluation": evaluation,
        "predictions": predictions,
        "blind_sample": blind_sample,
        "blind_key": blind_key,
        "report": report,
    }
    run_evaluation("evaluate", inputs, outputs, config, before, summary, evaluation_metrics, classification, lineage)


@step_component(STYLE_IMAGE)
def evaluate_small(
    before: dsl.Input[dsl.Artifact],
    style_rows: dsl.Input[dsl.Dataset],
    student_model: dsl.Input[dsl.Model],
    evaluation: dsl.Input[dsl.Artifact],
    predictions: dsl.Input[dsl.Dataset],
    config: dict,  # type: ignore[type-arg]
    small_evaluation: dsl.Output[dsl.Artifact],
    small_predictions: dsl.Output[dsl.Dataset],
    small_blind_sample: dsl.Output[dsl.Dataset],
    small_blind_key: dsl.Output[dsl.Artifact],
    small_report: dsl.Output[dsl.HTML],
    summary: dsl.Output[dsl.Markdown],
    small_evaluation_metrics: dsl.Output[dsl.Metrics],
    classification: dsl.Output[dsl.ClassificationMetrics],
    lineage: dsl.Output[dsl.Artifact],
) -> None:
    """Compare the smaller model's int8 form, its teacher and a bag of characters on the same locked answers."""
    from components.evaluation.style.step import run_evaluation

    inputs = {
        "style_rows": style_rows,
        "student_model": student_model,
        "evaluation": evaluation,
        "predictions": predictions,
    }
    outputs = {
        "small_evaluation": small_evaluation,
        "small_predictions": small_predictions,
        "small_blind_sample": small_blind_sample,
        "small_blind_key": small_blind_key,
        "small_report": small_report,
    }
    run_evaluation(
        "evaluate_small", inputs, outputs, config, before, summary, small_evaluation_metrics, classification, lineage
    )


@step_component(CPU_IMAGE)
def gate_style(
    before: dsl.Input[dsl.Artifact],
    evaluation: dsl.Input[dsl.Artifact],
    config: dict,  # type: ignore[type-arg]
    decision: dsl.Output[dsl.Markdown],
    lineage: dsl.Output[dsl.Artifact],
) -> str:
    """Answer `promote` or `hold`, on which the graph branches; the reasons are in the decision."""
    from components.gate_step import run_gate
    from qinglan.evaluation.gates.kinds import STYLE

    return run_gate(STYLE, evaluation, config, before, decision, lineage)


@step_component(CPU_IMAGE)
def gate_small(
    before: dsl.Input[dsl.Artifact],
    small_evaluation: dsl.Input[dsl.Artifact],
    config: dict,  # type: ignore[type-arg]
    decision: dsl.Output[dsl.Markdown],
    lineage: dsl.Output[dsl.Artifact],
) -> str:
    """Answer `promote` or `hold` for the smaller model, by the same gate."""
    from components.gate_step import run_gate
    from qinglan.evaluation.gates.kinds import STYLE

    return run_gate(STYLE, small_evaluation, config, before, decision, lineage, "gate_small", "small_evaluation")
