"""A small graph with all that a preflight looks at: a job of two nodes, a branch, Secrets, a volume."""

from pathlib import Path
from typing import Any

from kfp import compiler, dsl, kubernetes

IMAGE = "qinglan/cpu:0.1.0"
GPU, LABEL, A100 = "nvidia.com/gpu", "nvidia.com/gpu.product", "NVIDIA-A100-SXM4-80GB"
FIELDS = dsl.TaskConfigField
HANDED_ON = [
    FIELDS.RESOURCES, FIELDS.KUBERNETES_NODE_SELECTOR, FIELDS.KUBERNETES_TOLERATIONS,
    dsl.TaskConfigPassthrough(field=FIELDS.ENV, apply_to_task=True),
    dsl.TaskConfigPassthrough(field=FIELDS.KUBERNETES_VOLUMES, apply_to_task=True),
]  # fmt: skip


@dsl.component(base_image=IMAGE, install_kfp_package=False, task_config_passthroughs=HANDED_ON)
def train(questions: str, config: dict, task_config: dsl.TaskConfig):  # type: ignore
    pass


@dsl.component(base_image=IMAGE, install_kfp_package=False)
def gate(threshold: float) -> str:
    return "promote"


@dsl.component(base_image=IMAGE, install_kfp_package=False)
def release(name: str):  # type: ignore
    pass


def compile_graph(path: Path, nodes: int = 2, gpus: int = 8) -> Path:
    """Written to `path`."""

    @dsl.pipeline(name="qinglan-small")
    def graph(questions: str, threshold: float = 0.5, rounds: int = 1, release_name: str = "acme/rewriter") -> None:
        """Small.

        Args:
            questions: The sheet.
            threshold: Of the gate.
            rounds: Of the training.
            release_name: Of what passes.
        """
        trained: Any = train(questions=questions, config={"nodes": nodes, "gpus": gpus})
        trained.set_accelerator_type(GPU).set_accelerator_limit(gpus)
        kubernetes.add_node_selector(trained, LABEL, A100)
        kubernetes.add_toleration(trained, key=GPU, operator="Exists", effect="NoSchedule")
        kubernetes.mount_pvc(trained, "qinglan-scratch", "/var/lib/qinglan")
        kubernetes.use_secret_as_volume(trained, "qinglan-builder-key", "/etc/qinglan/keys")
        judged: Any = gate(threshold=threshold).after(trained)
        with dsl.If(judged.output == "promote"):
            released: Any = release(name=release_name)
            kubernetes.use_secret_as_volume(released, "qinglan-release-keys", "/etc/qinglan/keys")
            kubernetes.use_secret_as_env(released, "qinglan-store", {"AWS_ACCESS_KEY_ID": "AWS_ACCESS_KEY_ID"})
            kubernetes.use_secret_as_env(released, "qinglan-more", {"TOKEN": "TOKEN"}, optional=True)
            on_a_pod(released)
        on_a_pod(trained)
        on_a_pod(judged)

    compiler.Compiler().compile(graph, str(path))
    return path


@dsl.component(base_image=IMAGE, install_kfp_package=False)
def copy(sheet: dsl.Input[dsl.Dataset]):  # type: ignore
    pass


def compile_branch(path: Path) -> Path:
    """Written to `path`: an input with a constant address, taken in a branch by a step without any store's key."""

    @dsl.pipeline(name="qinglan-branch")
    def graph() -> None:
        sheet = dsl.importer(artifact_uri="s3://data/sheet.xlsx", artifact_class=dsl.Dataset).output
        judged: Any = gate(threshold=0.5)
        on_a_pod(judged)
        with dsl.If(judged.output == "promote"):
            on_a_pod(copy(sheet=sheet))

    compiler.Compiler().compile(graph, str(path))
    return path


def on_a_pod(task: Any) -> None:
    """Set what every graph's steps need."""
    task.set_cpu_request("1").set_cpu_limit("1").set_memory_request("1Gi").set_memory_limit("1Gi")
    task.set_caching_options(False)
    kubernetes.set_security_context(task, run_as_user=1000, run_as_group=1000, run_as_non_root=True)
    kubernetes.set_timeout(task, 3600)
