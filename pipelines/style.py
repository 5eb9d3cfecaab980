"""The graph of the style model; laptop and cluster run this same function.

labelled answers
  -> prepare -> base -> style              splits; a classifier over as many labels as the data has
  -> evaluate -> gate                      a verdict on the locked test, beside a bag of characters
  -> register                              what passes becomes a signed release
  -> distil                                it teaches a smaller one, with int8 weights for a CPU
  -> deploy                                where the profile says so: a ModelRollout of the release
"""

from collections.abc import Mapping, Sequence
from typing import Any

from kfp import dsl

from components.data.style.component import prepare
from components.evaluation.style.component import evaluate_style, gate_style
from components.release.deploy.component import deploy
from components.release.register.component import register_style
from components.training.base.component import text_base
from components.training.style.component import distil, style
from pipelines.cluster_resources import LOCAL_CLUSTER, Cluster
from pipelines.graph import GraphInputs, Wiring, import_artifact, wire_stages
from pipelines.stage_lines import STYLE

WIRING = Wiring(
    STYLE,
    {
        "prepare": prepare, "base": text_base, "style": style, "evaluate": evaluate_style, "gate": gate_style,
        "register": register_style, "distil": distil, "deploy": deploy,
    },
    never_cached=frozenset({"register", "deploy"}),
    never_retried=frozenset({"prepare", "gate"}),
)  # fmt: skip


def until(
    stages: Sequence[str],
    settings: Mapping[str, Mapping[str, Any]],
    cluster: Cluster = LOCAL_CLUSTER,
    about: str = "",
) -> Any:
    """The graph of these stages from the line's beginning, with each stage's settings as constants."""

    @dsl.pipeline(name="qinglan-style", description=f"From labelled answers to a style model. {about}".strip())
    def style_line(labelled: str, release_name: str = settings["register"]["name"]) -> None:
        """From labelled answers to a release of a style model, and a small one for a CPU.

        Args:
            labelled: The labelled answers, such as s3://bucket/style: JSON, .xlsx, or a folder with unlabelled texts.
            release_name: Tenant and model under which what passes is registered, and asked for in production.
        """
        made = {"labelled": import_artifact(labelled, immutable=cluster.immutable_inputs)}
        wire_stages(WIRING, stages, made, GraphInputs(settings, {"name": release_name}, cluster))

    return style_line
