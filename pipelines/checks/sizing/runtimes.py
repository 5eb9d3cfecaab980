"""The vLLM of a serving runtime, as its manifest starts it."""

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, NamedTuple

from pipelines.checks.sizing.volumes import MANIFESTS
from qinglan.sizing.cards import PRODUCT
from qinglan.sizing.vllm import VllmSettings, settings_of_options


class Runtime(NamedTuple):
    name: str
    settings: VllmSettings
    labels: Mapping[str, str]
    """Labels of the runtime's nodes."""


@cache
def vllm_runtime(name: str) -> Runtime | None:
    """The runtime of this name; None if it does not run vLLM."""
    for runtime in _runtimes():
        if runtime["metadata"]["name"] == name:
            for container in runtime["spec"]["containers"]:
                if container.get("command", [])[:2] == ["vllm", "serve"]:
                    labels = runtime["spec"].get("nodeSelector", {})
                    return Runtime(name, settings_of_options(container.get("args", [])), labels)
    return None


def _runtimes() -> Iterator[dict[str, Any]]:
    import yaml

    for path in sorted(MANIFESTS.rglob("*.yaml")):
        text = path.read_text(encoding="utf-8")
        if "kind: ServingRuntime" in text and PRODUCT in text:
            documents = (document for document in yaml.safe_load_all(text) if isinstance(document, dict))
            yield from (document for document in documents if document.get("kind") == "ServingRuntime")
