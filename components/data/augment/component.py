"""The augment stage as a KFP component; it decides nothing."""

from kfp import dsl

from components.image import CPU_IMAGE
from components.step_component import step_component


@step_component(CPU_IMAGE)
def augment(
    before: dsl.Input[dsl.Artifact],
    chats: dsl.Input[dsl.Dataset],
    prompts: dsl.Input[dsl.Dataset],
    locked_test: dsl.Input[dsl.Dataset],
    knowledge_base: dsl.Input[dsl.Dataset],
    gateway_url: str,
    # Only KFP's cache compares this digest of models, prices and knowledge bases; the step does not read it.
    gateway_state: str,
    config: dict,  # type: ignore[type-arg]
    augmented_chats: dsl.Output[dsl.Dataset],
    augmented_prompts: dsl.Output[dsl.Dataset],
    augment_left_out: dsl.Output[dsl.Dataset],
    augment_report: dsl.Output[dsl.Artifact],
    augment_metrics: dsl.Output[dsl.Metrics],
    lineage: dsl.Output[dsl.Artifact],
) -> None:
    """Let the teacher write further rows: rewrites that see the relevant passage, and questions from passages."""
    from pathlib import Path

    from components.data.augment import stage
    from components.data.augment.cases import Inputs
    from components.data.augment.config import AugmentConfig
    from components.step_figures import log_figures
    from qinglan.lineage.steps.record import recorded
    from qinglan.lineage.steps.step_inputs import add_gateway_usage, add_prompts

    settings = AugmentConfig.parse(config, "augment")
    inputs = {"chats": chats, "prompts": prompts, "locked_test": locked_test, "knowledge_base": knowledge_base}
    outputs = {
        "augmented_chats": augmented_chats,
        "augmented_prompts": augmented_prompts,
        "augment_left_out": augment_left_out,
        "augment_report": augment_report,
    }
    with recorded("augment", inputs, outputs, settings.model_dump(mode="json"), lineage, before) as step:
        paths = stage.Outputs(**{name: Path(artifact.path) for name, artifact in outputs.items()})
        counts = stage.augment(
            Inputs(**{name: Path(artifact.path) for name, artifact in inputs.items()}), paths, settings, gateway_url
        )
        step.facts.update(counts._asdict())
        add_gateway_usage(step, "augment", gateway_url)
        add_prompts(step, "hindsight")
        add_prompts(step, "pseudo")
    log_figures(augment_metrics, counts._asdict(), stage.FIGURES)
