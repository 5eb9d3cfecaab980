"""The PPO stage as a KFP component; it decides nothing."""

from kfp import dsl

from components.image import PPO_IMAGE
from components.step_component import step_component


@step_component(PPO_IMAGE, launches_job=True)
def ppo(
    before: dsl.Input[dsl.Artifact],
    sft_model: dsl.Input[dsl.Model],
    augmented_prompts: dsl.Input[dsl.Dataset],
    gateway_url: str,
    config: dict,  # type: ignore[type-arg]
    task_config: dsl.TaskConfig,
    rl_model: dsl.Output[dsl.Model],
    ppo_log: dsl.Output[dsl.Artifact],
    ppo_curve: dsl.Output[dsl.HTML],
    ppo_metrics: dsl.Output[dsl.Metrics],
    lineage: dsl.Output[dsl.Artifact],
) -> None:
    """Train the student by PPO to retrieve better than its teacher, with live retrieval as the judge."""
    from pathlib import Path

    from components.step_figures import log_figures
    from components.training.kubeflow.job_runner import job_runner
    from components.training.ppo import stage
    from components.training.ppo.config import PpoConfig
    from qinglan.lineage.steps.record import recorded
    from qinglan.lineage.steps.step_inputs import add_critic, add_gateway_usage, add_prompts, add_reward
    from qinglan.pages.curves import write_curve_page
    from qinglan.reward.scorer import STEP as REWARD

    settings = PpoConfig.parse(config, "ppo")
    where = job_runner(settings.hardware.device, task_config.__dict__)
    inputs = {"sft_model": sft_model, "augmented_prompts": augmented_prompts}
    outputs = {"rl_model": rl_model, "ppo_log": ppo_log, "ppo_curve": ppo_curve}
    with recorded("ppo", inputs, outputs, settings.model_dump(mode="json"), lineage, before) as step:
        counts = stage.ppo(
            Path(sft_model.path),
            Path(augmented_prompts.path),
            Path(rl_model.path),
            Path(ppo_log.path),
            gateway_url,
            settings,
            runner=where,
        )
        step.facts.update(counts._asdict())
        add_gateway_usage(step, REWARD, gateway_url)
        add_prompts(step, "judge*", settings.reward.judge_prompt)
        add_reward(step, settings.reward)
        add_critic(step, Path(rl_model.path))
        write_curve_page(Path(ppo_log.path), Path(ppo_curve.path))
    log_figures(ppo_metrics, counts._asdict(), stage.FIGURES)
