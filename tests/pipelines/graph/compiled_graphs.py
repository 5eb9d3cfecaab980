"""A compiled graph as the tests read it: its tasks, steps and pods."""

from functools import cache
from typing import Any, NamedTuple

import yaml

from pipelines.graph.compiler import COMPILED
from tests.screens.graph_yaml import LOADER

GOLDENS = sorted(path.stem for path in COMPILED.glob("*.yaml"))


ON_GPUS = {
    "rewriter.a100x4": {"sft": 4, "ppo": 4, "evaluate": 2},
    "rewriter.a100x8": {"sft": 8, "ppo": 8, "evaluate": 2},
    "rewriter.a100x8-full": {"sft": 8, "ppo": 8, "evaluate": 2},
    "rewriter.one-gpu-24": {"sft": 1, "ppo": 1, "evaluate": 1},
    "rewriter.one-gpu-80": {"sft": 1, "ppo": 1, "evaluate": 1},
    "rewriter.a100-multinode": {"sft": 4, "ppo": 4, "evaluate": 2},
    "style.a100": {"style": 1, "evaluate-style": 1, "distil": 1},
    "style.one-gpu-24": {"style": 1, "evaluate-style": 1, "distil": 1},
}
"""By graph and task: GPUs of one node."""


DIGEST = "sha256:" + "a1" * 32


class Compiled(NamedTuple):
    spec: Any
    pods: Any
    """Kubernetes settings by executor."""

    @property
    def tasks(self) -> dict[str, Any]:
        """Tasks of the graph and of its branch."""
        branches = [component["dag"]["tasks"] for component in self.spec["components"].values() if "dag" in component]
        return {name: task for part in (self.spec["root"]["dag"]["tasks"], *branches) for name, task in part.items()}

    @property
    def steps(self) -> dict[str, Any]:
        """Each container, by task."""
        executors = self.spec["deploymentSpec"]["executors"]
        return {
            name.removeprefix("exec-"): executor["container"]
            for name, executor in executors.items()
            if "container" in executor
        }

    def pod(self, step: str) -> Any:
        return self.pods[f"exec-{step}"]


@cache
def compiled(name: str) -> Compiled:
    return parsed((COMPILED / f"{name}.yaml").read_text(encoding="utf-8"))


def parsed(text: str) -> Compiled:
    spec, platform = yaml.load_all(text, Loader=LOADER)
    return Compiled(spec, platform["platforms"]["kubernetes"]["deploymentSpec"]["executors"])


FETCHING = {
    name: name
    for name in (
        "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_REGION", "AWS_ENDPOINT_URL_S3",
    )
}  # fmt: skip
"""Variables that KFP's launcher reads if an input is in another bucket than KFP's own."""


def env(container: Any) -> list[Any]:
    return list(container.get("env", ()))
