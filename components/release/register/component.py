"""The register stage as KFP components, one for each line; they decide nothing."""

from kfp import dsl

from components.image import CPU_IMAGE


@dsl.component(base_image=CPU_IMAGE, install_kfp_package=False)
def register(
    before: dsl.Input[dsl.Artifact],
    evaluation: dsl.Input[dsl.Artifact],
    rl_model: dsl.Input[dsl.Model],
    report: dsl.Input[dsl.HTML],
    name: str,
    config: dict,  # type: ignore[type-arg]
    release: dsl.Output[dsl.Model],
    summary: dsl.Output[dsl.Markdown],
    lineage: dsl.Output[dsl.Artifact],
) -> None:
    """What may serve, signed: the rewriter."""
    from pathlib import Path

    from components.release.register import stage
    from components.release.register.config import RegisterConfig
    from qinglan.lineage.record import recorded

    settings = RegisterConfig.parse({**config, "name": name}, "register")
    inputs = {"evaluation": evaluation, "rl_model": rl_model, "report": report}
    paths = stage.Inputs(Path(evaluation.path), Path(rl_model.path), Path(report.path), Path(before.path))
    with recorded("register", inputs, {"release": release}, stage.settings(settings), lineage, before) as step:
        made = stage.register(paths, Path(release.path), settings)
        step.facts.update(made._asdict())
    Path(summary.path).write_text(stage.to_markdown(made), encoding="utf-8")


@dsl.component(base_image=CPU_IMAGE, install_kfp_package=False)
def register_style(
    before: dsl.Input[dsl.Artifact],
    evaluation: dsl.Input[dsl.Artifact],
    style_model: dsl.Input[dsl.Model],
    report: dsl.Input[dsl.HTML],
    name: str,
    config: dict,  # type: ignore[type-arg]
    release: dsl.Output[dsl.Model],
    summary: dsl.Output[dsl.Markdown],
    lineage: dsl.Output[dsl.Artifact],
) -> None:
    """What may serve, signed: the style model."""
    from pathlib import Path

    from components.release.register import stage
    from components.release.register.config import RegisterConfig
    from qinglan.lineage.record import recorded

    settings = RegisterConfig.parse({**config, "name": name}, "register")
    inputs = {"evaluation": evaluation, "style_model": style_model, "report": report}
    paths = stage.Inputs(Path(evaluation.path), Path(style_model.path), Path(report.path), Path(before.path))
    with recorded("register", inputs, {"release": release}, stage.settings(settings), lineage, before) as step:
        made = stage.register(paths, Path(release.path), settings)
        step.facts.update(made._asdict())
    Path(summary.path).write_text(stage.to_markdown(made), encoding="utf-8")
