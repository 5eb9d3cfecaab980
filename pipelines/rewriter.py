"""The graph of the rewriter; laptop and cluster run this same function.

questions, knowledge base
  -> generate -> validate -> convert       SFT rows, PPO rows, locked test
  -> base -> sft -> ppo                    a model of the student
  -> evaluate -> gate -> register          a verdict on the locked test; what passes becomes a signed release
"""

from collections.abc import Sequence
from typing import Any

from kfp import dsl

from components.data.convert.component import convert
from components.data.generate.component import generate
from components.data.validate.component import validate
from components.evaluation.rewriter.component import evaluate, gate
from components.release.register.component import register
from components.training.base.component import base
from components.training.ppo.component import ppo
from components.training.sft.component import sft
from pipelines.graph import A100, Wiring, given, wire
from pipelines.lines import REWRITER

WIRING = Wiring(
    REWRITER,
    {
        "generate": generate, "validate": validate, "convert": convert, "base": base, "sft": sft, "ppo": ppo,
        "evaluate": evaluate, "gate": gate, "register": register,
    },
    hours={"sft": 24 * 7, "ppo": 24 * 7, "evaluate": 24},
    # The teacher, the knowledge base behind the RAG, and where a hub's branch points may all be others tomorrow.
    never_cached=REWRITER.asks_the_gateway | {"base"},
)  # fmt: skip


def until(stages: Sequence[str]) -> Any:
    """The graph of these stages from the thread's beginning."""

    @dsl.pipeline(name="qinglan-rewriter")
    def rewriter(
        questions_uri: str,
        knowledge_base_uri: str,
        gateway_url: str,
        generate_config: dict,  # type: ignore[type-arg]
        validate_config: dict,  # type: ignore[type-arg]
        convert_config: dict,  # type: ignore[type-arg]
        base_config: dict,  # type: ignore[type-arg]
        sft_config: dict,  # type: ignore[type-arg]
        ppo_config: dict,  # type: ignore[type-arg]
        evaluate_config: dict,  # type: ignore[type-arg]
        gate_config: dict,  # type: ignore[type-arg]
        register_config: dict,  # type: ignore[type-arg]
        gpu_nodes: dict = A100,  # type: ignore[type-arg]
        sft_gpus: int = 4,
        ppo_gpus: int = 4,
        evaluate_gpus: int = 1,
    ) -> None:
        """From a spreadsheet of questions to a release of a rewriter.

        Args:
            questions_uri: The spreadsheet (.xlsx) or JSONL of questions, in the object store.
            knowledge_base_uri: The JSONL that the RAG service serves; its digest is checked against the answers.
            gateway_url: The run's gateway, the only way to the paid models and to the RAG.
            generate_config: GenerateConfig as JSON; at least {"tenant_id": "..."}.
            validate_config: ValidateConfig as JSON; {} takes the defaults, here and below.
            convert_config: ConvertConfig as JSON.
            base_config: BaseConfig as JSON.
            sft_config: SftConfig as JSON.
            ppo_config: PpoConfig as JSON.
            evaluate_config: EvaluateConfig as JSON.
            gate_config: GateConfig as JSON.
            register_config: RegisterConfig as JSON; at least {"name": "tenant/rewriter"}.
            gpu_nodes: Labels of the nodes that have the GPUs.
            sft_gpus: GPUs of the SFT step, as many as sft_config says.
            ppo_gpus: GPUs of the PPO step, as many as ppo_config says.
            evaluate_gpus: GPUs that the students are evaluated on.
        """
        parameters = {
            "gateway_url": gateway_url, "generate_config": generate_config, "validate_config": validate_config,
            "convert_config": convert_config, "base_config": base_config, "sft_config": sft_config,
            "ppo_config": ppo_config, "evaluate_config": evaluate_config, "gate_config": gate_config,
            "register_config": register_config, "gpu_nodes": gpu_nodes,
        }  # fmt: skip
        made = {"questions": given(questions_uri), "knowledge_base": given(knowledge_base_uri)}
        wire(WIRING, stages, made, parameters, {"sft": sft_gpus, "ppo": ppo_gpus, "evaluate": evaluate_gpus})

    return rewriter
