"""The style policy stage as a KFP component; it decides nothing."""

from kfp import dsl

from components.image import STYLE_IMAGE


@dsl.component(base_image=STYLE_IMAGE, install_kfp_package=False)
def style_policy(
    before: dsl.Input[dsl.Artifact],
    style_rows: dsl.Input[dsl.Dataset],
    style_model: dsl.Input[dsl.Model],
    base_model: dsl.Input[dsl.Model],
    config: dict,  # type: ignore[type-arg]
    policy_model: dsl.Output[dsl.Model],
    policy_log: dsl.Output[dsl.Artifact],
    policy_curve: dsl.Output[dsl.HTML],
    metrics: dsl.Output[dsl.Metrics],
    lineage: dsl.Output[dsl.Artifact],
) -> None:
    """A responder learns a manner from the style model, watched by an independent judge."""
    from pathlib import Path

    from components.training.style_policy import stage
    from components.training.style_policy.config import StylePolicyConfig
    from qinglan.curves import write_curve_page
    from qinglan.lineage.record import recorded

    settings = StylePolicyConfig.parse(config, "style_policy")
    inputs = {"style_rows": style_rows, "style_model": style_model, "base_model": base_model}
    outputs = {"policy_model": policy_model, "policy_log": policy_log, "policy_curve": policy_curve}
    with recorded("style_policy", inputs, outputs, settings.model_dump(mode="json"), lineage, before) as step:
        counts = stage.style_policy(
            Path(style_rows.path), Path(style_model.path), Path(base_model.path), Path(policy_model.path),
            Path(policy_log.path), settings,
        )  # fmt: skip
        step.facts.update(counts._asdict())
        write_curve_page(Path(policy_log.path), Path(policy_curve.path))
    for name, value in counts._asdict().items():
        metrics.log_metric(name, value)
