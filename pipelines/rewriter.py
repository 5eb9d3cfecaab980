"""The graph of the rewriter; laptop and cluster run this same function.

questions, knowledge base
  -> generate -> validate -> convert       SFT rows, PPO rows, locked test
  -> base -> sft -> ppo                    a model of the student
  -> evaluate -> gate -> candidate         a verdict on the locked test; what passes may be released
"""

from collections.abc import Mapping, Sequence
from typing import Any

from kfp import dsl, kubernetes

from components.data.convert.component import convert
from components.data.generate.component import generate
from components.data.validate.component import validate
from components.evaluation.rewriter.component import evaluate, gate
from components.release.candidate.component import candidate
from components.training.base.component import base
from components.training.ppo.component import ppo
from components.training.sft.component import sft
from pipelines.thread import ASKS_THE_GATEWAY, BEHIND_THE_GATE, STAGES, THREAD

COMPONENTS: dict[str, Any] = {
    "generate": generate, "validate": validate, "convert": convert, "base": base, "sft": sft, "ppo": ppo,
    "evaluate": evaluate, "gate": gate, "candidate": candidate,
}  # fmt: skip

GPU = "nvidia.com/gpu"
A100 = {"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB"}
NEVER_CACHED = ASKS_THE_GATEWAY | {"base"}
"""KFP's cache key knows nothing of the teacher, the knowledge base behind the RAG, or where a hub's branch points."""

LONGEST_HOURS = {"sft": 24 * 7, "ppo": 24 * 7, "evaluate": 24}


KINDS = {f"{kind.schema_title}@{kind.schema_version}": kind for kind in (dsl.Dataset, dsl.Model, dsl.Artifact)}


def _import(uri: Any, kind: Any = dsl.Dataset) -> Any:
    # No display name: the 2.17 back end looks an importer up by its task name, and records the display name.
    return dsl.importer(artifact_uri=uri, artifact_class=kind, reimport=True).output


def _task(stage: str, made: Mapping[str, Any], parameters: Mapping[str, Any]) -> Any:
    """One stage, with the artifacts and parameters that it names."""
    component = COMPONENTS[stage]
    wanted = set(component.component_spec.inputs)
    given = {name: value for name, value in parameters.items() if name in wanted}
    task = component(**{name: made[name] for name in THREAD[stage]}, **given)
    if stage in NEVER_CACHED:
        task.set_caching_options(False)
    return task


def _on_gpus(task: Any, stage: str, count: Any, nodes: Any) -> None:
    """Type and count together: with one of them alone the back end asks for no GPU at all."""
    task.set_accelerator_type(GPU).set_accelerator_limit(count)
    kubernetes.add_node_selector_json(task, node_selector_json=nodes)
    kubernetes.add_toleration(task, key=GPU, operator="Exists", effect="NoSchedule")
    kubernetes.empty_dir_mount(task, volume_name="shm", mount_path="/dev/shm", medium="Memory")
    kubernetes.set_timeout(task, LONGEST_HOURS[stage] * 3600)


def _graph(stages: Sequence[str], made: dict[str, Any], parameters: dict[str, Any], gpus: Mapping[str, Any]) -> None:
    """The stages one after another, and behind the gate what only a promoted model gets to."""
    verdict: Any = None
    for stage in stages:
        mine = {**parameters, "config": parameters.get(f"{stage}_config")}
        if stage in BEHIND_THE_GATE and verdict is not None:
            with dsl.If(verdict == "promote", name="promoted"):
                task = _task(stage, made, mine)
        else:
            task = _task(stage, made, mine)
        if stage in gpus:
            _on_gpus(task, stage, gpus[stage], parameters["gpu_nodes"])
        if stage == "gate":
            verdict = task.outputs["Output"]
        made |= {name: task.outputs[name] for name in task.outputs if name != "Output"}


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
        gpu_nodes: dict = A100,  # type: ignore[type-arg]
        sft_gpus: int = 4,
        ppo_gpus: int = 4,
        evaluate_gpus: int = 1,
    ) -> None:
        """From a spreadsheet of questions to a rewriter with a verdict.

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
            gpu_nodes: Labels of the nodes that have the GPUs.
            sft_gpus: GPUs of the SFT step, as many as sft_config says.
            ppo_gpus: GPUs of the PPO step, as many as ppo_config says.
            evaluate_gpus: GPUs that the students are evaluated on.
        """
        parameters = {
            "gateway_url": gateway_url, "generate_config": generate_config, "validate_config": validate_config,
            "convert_config": convert_config, "base_config": base_config, "sft_config": sft_config,
            "ppo_config": ppo_config, "evaluate_config": evaluate_config, "gate_config": gate_config,
            "gpu_nodes": gpu_nodes,
        }  # fmt: skip
        given = {"questions": _import(questions_uri), "knowledge_base": _import(knowledge_base_uri)}
        _graph(stages, given, parameters, {"sft": sft_gpus, "ppo": ppo_gpus, "evaluate": evaluate_gpus})

    return rewriter


rewriter = until(STAGES)


def alone(stage: str, inputs: dict[str, str], parameters: dict[str, Any]) -> Any:
    """A graph of one stage, fed from artifacts that are there already."""

    @dsl.pipeline(name=f"qinglan-{stage}")
    def graph() -> None:
        wanted = COMPONENTS[stage].component_spec.inputs
        _task(stage, {name: _import(uri, KINDS[wanted[name].type]) for name, uri in inputs.items()}, parameters)

    return graph
