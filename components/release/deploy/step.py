"""Run the deploy stage as a step of KFP, in the same way for each release of a line."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from components.release.deploy import stage
from components.release.deploy.cluster import ClusterRollouts
from components.release.deploy.config import DeployConfig
from components.step_summary import write_summary
from qinglan.lineage.signing.trust import default_trust
from qinglan.lineage.steps.record import Artifact, recorded


def run_deploy(
    name: str, inputs: Mapping[str, Artifact], config: Mapping[str, Any], before: Artifact, summary: Artifact,
    lineage: Artifact,
) -> None:  # fmt: skip
    """Deploy the only release among the inputs, record and sign the step, and show its rollout."""
    settings = DeployConfig.parse(config, name)
    [release] = inputs.values()
    with recorded(name, inputs, {}, stage.settings(settings), lineage, before) as step:
        done = stage.deploy(Path(release.path), settings, default_trust(), ClusterRollouts(settings.namespace))
        step.facts.update(done._asdict())
    write_summary(summary, stage.to_markdown(done, settings))
