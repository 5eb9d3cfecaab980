"""The deploy stage as a KFP component; it decides nothing."""

from kfp import dsl

from components.image import CPU_IMAGE


@dsl.component(base_image=CPU_IMAGE, install_kfp_package=False)
def deploy(
    before: dsl.Input[dsl.Artifact],
    release: dsl.Input[dsl.Model],
    name: str,
    config: dict,  # type: ignore[type-arg]
    summary: dsl.Output[dsl.Markdown],
    lineage: dsl.Output[dsl.Artifact],
) -> None:
    """A ModelRollout that brings the release to its InferenceService."""
    from pathlib import Path

    from components.release.deploy import stage
    from components.release.deploy.cluster import ClusterRollouts
    from components.release.deploy.config import DeployConfig
    from qinglan.lineage.record import recorded
    from qinglan.lineage.trust import default_trust

    settings = DeployConfig.parse({**config, "name": name}, "deploy")
    with recorded("deploy", {"release": release}, {}, stage.settings(settings), lineage, before) as step:
        done = stage.deploy(Path(release.path), settings, default_trust(), ClusterRollouts(settings.namespace))
        step.facts.update(done._asdict())
    Path(summary.path).write_text(stage.to_markdown(done, settings), encoding="utf-8")
