"""The SFT stage as a KFP component; it decides nothing."""

from kfp import dsl

from components.image import SFT_IMAGE
from components.step_component import step_component


@step_component(SFT_IMAGE, launches_job=True)
def sft(
    before: dsl.Input[dsl.Artifact],
    base_model: dsl.Input[dsl.Model],
    augmented_chats: dsl.Input[dsl.Dataset],
    gateway_url: str,
    config: dict,  # type: ignore[type-arg]
    task_config: dsl.TaskConfig,
    sft_model: dsl.Output[dsl.Model],
    sft_log: dsl.Output[dsl.Artifact],
    sft_curve: dsl.Output[dsl.HTML],
    sft_metrics: dsl.Output[dsl.Metrics],
    lineage: dsl.Output[dsl.Artifact],
) -> None:
    """Train the student on the teacher's accepted rewrites."""
    from pathlib import Path

    from components.step_figures import log_figures
    from components.training.kubeflow.job_runner import job_runner
    from components.training.sft import stage
    from components.training.sft.config import SftConfig
    from qinglan.lineage.steps.record import recorded
    from qinglan.pages.curves import write_curve_page

    settings = SftConfig.parse(config, "sft")
    where = job_runner(settings.device, task_config.__dict__)
    inputs = {"base_model": base_model, "augmented_chats": augmented_chats}
    outputs = {"sft_model": sft_model, "sft_log": sft_log, "sft_curve": sft_curve}
    with recorded("sft", inputs, outputs, settings.model_dump(mode="json"), lineage, before) as step:
        counts = stage.sft(
            Path(base_model.path),
            Path(augmented_chats.path),
            Path(sft_model.path),
            Path(sft_log.path),
            settings,
            where,
            gateway_url,
        )
        step.facts.update(counts._asdict())
        write_curve_page(Path(sft_log.path), Path(sft_curve.path))
    log_figures(sft_metrics, counts._asdict(), stage.FIGURES)
