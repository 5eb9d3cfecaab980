"""The graph of the rewriter; laptop and cluster run this same function.

questions, knowledge base
  -> generate -> validate -> convert       SFT rows, PPO rows, locked test
  -> base -> sft -> ppo                    a model of the student
  -> evaluate -> gate -> register          a verdict on the locked test; what passes becomes a signed release
"""

from collections.abc import Mapping, Sequence
from typing import Any

from kfp import dsl

from components.data.convert.component import convert
from components.data.generate.component import generate
from components.data.validate.component import validate
from components.evaluation.rewriter.component import evaluate, gate
from components.release.deploy.component import deploy
from components.release.register.component import register
from components.training.base.component import base
from components.training.ppo.component import ppo
from components.training.sft.component import sft
from pipelines.cluster_resources import LOCAL_CLUSTER, Cluster
from pipelines.graph import GATEWAY, GraphInputs, Wiring, import_artifact, wire_stages
from pipelines.stage_lines import REWRITER

WIRING = Wiring(
    REWRITER,
    {
        "generate": generate, "validate": validate, "convert": convert, "base": base, "sft": sft, "ppo": ppo,
        "evaluate": evaluate, "gate": gate, "register": register, "deploy": deploy,
    },
    # The teacher and the knowledge base behind the RAG may be others tomorrow; a training that launches a job finds
    # what is finished by a key of its own, which knows more than KFP's.
    never_cached=REWRITER.asks_the_gateway | {"sft", "register", "deploy"},
    never_retried=frozenset({"convert", "gate"}),
)  # fmt: skip


def until(
    stages: Sequence[str],
    settings: Mapping[str, Mapping[str, Any]],
    cluster: Cluster = LOCAL_CLUSTER,
    about: str = "",
) -> Any:
    """The graph of these stages from the thread's beginning, with each stage's settings as constants."""

    @dsl.pipeline(
        name="qinglan-rewriter", description=f"From a spreadsheet of questions to a rewriter. {about}".strip()
    )
    def rewriter(
        questions: str,
        knowledge_base: str,
        gateway_url: str = GATEWAY,
        release_name: str = settings["register"]["name"],
    ) -> None:
        """From a spreadsheet of questions to a release of a rewriter.

        Args:
            questions: The spreadsheet (.xlsx) or JSONL of questions, such as s3://bucket/questions.xlsx.
            knowledge_base: The JSONL that the RAG service serves; its digest is checked against the answers.
            gateway_url: The gateway of this run, the only way to the paid models and to the RAG service.
            release_name: Tenant and model under which what passes is registered, and asked for in production.
        """
        uris = {"questions": questions, "knowledge_base": knowledge_base}
        made = {name: import_artifact(uri, immutable=cluster.immutable_inputs) for name, uri in uris.items()}
        wire_stages(
            WIRING, stages, made, GraphInputs(settings, {"gateway_url": gateway_url, "name": release_name}, cluster)
        )

    return rewriter
