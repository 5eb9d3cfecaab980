"""The manifests as the repository holds them, and the pods that any kind of object of ours asks for."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import yaml

MANIFESTS = Path(__file__).parents[2] / "manifests"
OVERLAYS = ("laptop-cluster", "single-tenant", "multi-tenant", "a100", "release")
TEMPLATES = ("initContainer.yaml",)
"""Not YAML before somebody fills them in."""

Object = dict[str, Any]


def objects(path: Path) -> list[Object]:
    """Objects of a file."""
    return [item for item in yaml.load_all(path.read_text(), yaml.CSafeLoader) if item]


def resources() -> list[tuple[Path, Object]]:
    """Every object of every file, patches of a line or two among them; kustomize's own settings are none."""
    files = [file for file in sorted(MANIFESTS.rglob("*.yaml")) if file.name not in TEMPLATES]
    return [(file.relative_to(MANIFESTS), item) for file in files for item in objects(file) if "metadata" in item]


class Pod(NamedTuple):
    """A pod that an object asks for."""

    owner: str
    kind: str
    labels: Mapping[str, str]
    spec: Object

    @property
    def serves(self) -> bool:
        """Somebody asks it over the network, so that it needs probes."""
        return self.kind in ("Deployment", "StatefulSet", "DaemonSet", "ServingRuntime")


def pods(item: Object) -> Iterator[Pod]:
    """The pod templates in an object, whatever its kind: an unknown kind that holds some is found too."""
    kind, spec = item["kind"], item.get("spec") or {}
    owner = f"{kind}/{item['metadata']['name']}"
    if kind == "Pod":
        yield Pod(owner, kind, item["metadata"].get("labels") or {}, spec)
    elif kind in ("ServingRuntime", "ClusterServingRuntime"):
        yield Pod(owner, kind, spec.get("labels") or {}, spec)
    elif kind == "ClusterStorageContainer":
        yield Pod(owner, kind, {}, {"initContainers": [spec["container"]]})
    else:
        yield from _templates(owner, kind, spec)


def _templates(owner: str, kind: str, value: Any) -> Iterator[Pod]:
    if isinstance(value, list):
        for item in value:
            yield from _templates(owner, kind, item)
    if not isinstance(value, dict):
        return
    template = value.get("template")
    if isinstance(template, dict) and isinstance(template.get("spec"), dict) and "containers" in template["spec"]:
        yield Pod(owner, kind, (template.get("metadata") or {}).get("labels") or {}, template["spec"])
    else:
        for item in value.values():
            yield from _templates(owner, kind, item)
