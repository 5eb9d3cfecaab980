"""The base stage as KFP components, one for each line; they decide nothing."""

from kfp import dsl

from components.image import SFT_IMAGE, STYLE_IMAGE
from components.step_component import step_component


@step_component(SFT_IMAGE)
def base(
    before: dsl.Input[dsl.Artifact],
    knowledge_base: dsl.Input[dsl.Dataset],
    prompts: dsl.Input[dsl.Dataset],
    config: dict,  # type: ignore[type-arg]
    base_model: dsl.Output[dsl.Model],
    base_metrics: dsl.Output[dsl.Metrics],
    lineage: dsl.Output[dsl.Artifact],
) -> None:
    """Fetch the model that training starts from, or make a tiny one."""
    from pathlib import Path

    from components.step_figures import log_figures
    from components.training.base import stage
    from components.training.base.config import BaseConfig
    from qinglan.lineage.steps.record import recorded

    settings = BaseConfig.parse(config, "base")
    inputs = {"knowledge_base": knowledge_base, "prompts": prompts}
    with recorded(
        "base", inputs, {"base_model": base_model}, settings.model_dump(mode="json"), lineage, before
    ) as step:
        counts = stage.base(Path(knowledge_base.path), Path(prompts.path), Path(base_model.path), settings)
        step.facts.update(counts._asdict())
    log_figures(base_metrics, counts._asdict(), stage.FIGURES)


@step_component(STYLE_IMAGE)
def text_base(
    before: dsl.Input[dsl.Artifact],
    style_rows: dsl.Input[dsl.Dataset],
    config: dict,  # type: ignore[type-arg]
    base_model: dsl.Output[dsl.Model],
    base_metrics: dsl.Output[dsl.Metrics],
    lineage: dsl.Output[dsl.Artifact],
) -> None:
    """Fetch the model that the classifier starts from, or make a tiny one."""
    from pathlib import Path

    from components.step_figures import log_figures
    from components.training.base import stage
    from components.training.base.config import BaseConfig
    from qinglan.lineage.steps.record import recorded

    settings = BaseConfig.parse(config, "base")
    outputs = {"base_model": base_model}
    with recorded(
        "base", {"style_rows": style_rows}, outputs, settings.model_dump(mode="json"), lineage, before
    ) as step:
        counts = stage.text_base(Path(style_rows.path), Path(base_model.path), settings)
        step.facts.update(counts._asdict())
    log_figures(base_metrics, counts._asdict(), stage.FIGURES)
