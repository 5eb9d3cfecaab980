"""Volumes and serving runtimes, as this repository's manifests define them."""

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from qinglan.sizing.constants import GIB
from qinglan.sizing.vllm import VllmSettings, settings_of_options

MANIFESTS = Path(__file__).parents[3] / "manifests"
CLAIM_FOLDERS = ("overlays/a100", "base")
"""Folders with volume claims; the first folder that has a claim counts."""

UNITS = {"Gi": GIB, "Ti": 1024 * GIB, "G": 10**9, "T": 10**12}


class Runtime(NamedTuple):
    """A serving runtime that runs vLLM."""

    name: str
    settings: VllmSettings
    labels: Mapping[str, str]
    """Labels of the nodes on which the runtime is scheduled."""


@cache
def claimed_bytes(name: str) -> float:
    """Return the bytes of a volume claim; 0 if no manifest has it."""
    paths = [path for folder in CLAIM_FOLDERS for path in sorted((MANIFESTS / folder).glob("*.yaml"))]
    for claim in _objects("PersistentVolumeClaim", paths):
        if claim["metadata"]["name"] == name:
            size = re.fullmatch(r"(\d+)([GT]i?)", str(claim["spec"]["resources"]["requests"]["storage"]))
            return float(size[1]) * UNITS[size[2]] if size else 0.0
    return 0.0


@cache
def vllm_runtime(name: str) -> Runtime | None:
    """Read the serving runtime of this name; None if it does not run vLLM."""
    for runtime in _objects("ServingRuntime", sorted(MANIFESTS.rglob("*.yaml"))):
        if runtime["metadata"]["name"] == name:
            for container in runtime["spec"]["containers"]:
                if container.get("command", [])[:2] == ["vllm", "serve"]:
                    labels = runtime["spec"].get("nodeSelector", {})
                    return Runtime(name, settings_of_options(container.get("args", [])), labels)
    return None


def _objects(kind: str, paths: Iterable[Path]) -> Iterator[dict[str, Any]]:
    import yaml

    for path in paths:
        text = path.read_text(encoding="utf-8")
        # Some files hold templates of other programs, which are no YAML.
        if re.search(rf"^kind: {kind}$", text, re.MULTILINE):
            documents = [document for document in yaml.safe_load_all(text) if isinstance(document, dict)]
            yield from (document for document in documents if document.get("kind") == kind)
