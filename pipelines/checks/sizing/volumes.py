"""Sizes of the cluster's volumes, as the manifests claim them."""

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from qinglan.sizing.constants import GIB

MANIFESTS = Path(__file__).parents[3] / "manifests"
FOLDERS = ("overlays/a100", "base")
"""Folders of manifests, in the order in which a claim counts."""

UNITS = {"Gi": GIB, "Ti": 1024 * GIB, "G": 10**9, "T": 10**12}


@cache
def claimed_bytes(name: str) -> float:
    """Bytes of a volume claim; 0 if no manifest has it."""
    for claim in _claims():
        if claim["metadata"]["name"] == name:
            size = re.fullmatch(r"(\d+)([GT]i?)", str(claim["spec"]["resources"]["requests"]["storage"]))
            return float(size[1]) * UNITS[size[2]] if size else 0.0
    return 0.0


def _claims() -> Iterator[dict[str, Any]]:
    import yaml

    for folder in FOLDERS:
        for path in sorted((MANIFESTS / folder).glob("*.yaml")):
            for document in yaml.safe_load_all(path.read_text(encoding="utf-8")):
                if isinstance(document, dict) and document.get("kind") == "PersistentVolumeClaim":
                    yield document
