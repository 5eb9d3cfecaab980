"""The evaluation as a pipeline step, for the style model and for the smaller model distilled from it."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import orjson

from components.evaluation.style import stage
from components.evaluation.style.config import EvaluateStyleConfig
from components.evaluation.style.probabilities import TeacherFiles
from components.evaluation.style.report import to_markdown
from components.step_figures import log_figures
from components.step_summary import write_summary
from qinglan.evaluation.gates.evaluation_file import Outputs
from qinglan.lineage.steps.record import Artifact, recorded

SMALL = "small_"


def run_evaluation(
    name: str,
    inputs: Mapping[str, Artifact],
    outputs: Mapping[str, Artifact],
    config: Mapping[str, Any],
    before: Artifact,
    summary: Artifact,
    metrics: Any,
    classification: Any,
    lineage: Artifact,
) -> None:
    """Evaluate the style model, record and sign the step, and show its figures.

    If the inputs hold a teacher's evaluation, the distilled model is evaluated instead.
    """
    settings = EvaluateStyleConfig.parse(config, name)
    files = Outputs.of_step({output.removeprefix(SMALL): artifact for output, artifact in outputs.items()})
    teacher = None
    if "predictions" in inputs:
        teacher = TeacherFiles(Path(inputs["evaluation"].path), Path(inputs["predictions"].path))
    model = inputs["student_model" if teacher else "style_model"]
    with recorded(name, inputs, outputs, settings.model_dump(mode="json"), lineage, before) as step:
        counts = stage.evaluate(Path(inputs["style_rows"].path), Path(model.path), files, settings, teacher)
        step.facts.update(counts._asdict())
    result = orjson.loads(files.evaluation.read_bytes())
    write_summary(summary, to_markdown(result))
    classification.log_confusion_matrix(result["labels"], result["systems"]["model"]["confusion"])
    log_figures(metrics, {**counts._asdict(), **stage.headline_numbers(result)}, stage.FIGURES)
