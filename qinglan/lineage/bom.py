"""Whether a bill of materials is the model's: CycloneDX 1.6, strictly, and its digests those of the bytes at hand."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from qinglan.digests import FILE_ALGORITHM, FOLDER_ALGORITHM
from qinglan.lineage.statement import ArtifactRef

CYCLONEDX_HASHES = {FILE_ALGORITHM: "SHA-256", FOLDER_ALGORITHM: "SHA3-256"}
"""in-toto's names of our digests, and CycloneDX's."""

MODEL = "machine-learning-model"
MODEL_FILE_PREFIX = "model/"
"""Files of the model are components by their path in the release."""


def schema_fault(text: str) -> str:
    """Why the text is no CycloneDX 1.6; "" where it is, strictly."""
    from cyclonedx.schema import SchemaVersion
    from cyclonedx.validation.json import JsonStrictValidator

    error = JsonStrictValidator(SchemaVersion.V1_6).validate_str(text)
    return "" if error is None else str(error.data if hasattr(error, "data") else error).splitlines()[0][:200]


def bom_fault(path: Path, name: str, model: ArtifactRef, files: Mapping[str, str]) -> str:
    """Why it is not the bill of this model, by its name, digest and files; "" where it is.

    Where the statement of before calls a folder's digest sha256, so does the bill.
    """
    kind = CYCLONEDX_HASHES.get(model.algorithm, CYCLONEDX_HASHES[FILE_ALGORITHM])
    try:
        text = path.read_text(encoding="utf-8")
        found = json.loads(text)
        if why := schema_fault(text):
            return f"no CycloneDX 1.6: {why}"
        about = found["metadata"]["component"]
        listed = {
            one["name"]: _digest(one, CYCLONEDX_HASHES[FILE_ALGORITHM])
            for one in found["components"]
            if one["name"].startswith(MODEL_FILE_PREFIX)
        }
        said = (about["type"], about["name"], _digest(about, kind), about["version"], "modelCard" in about)
    except OSError as error:
        return f"cannot be read ({error.strerror})"
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        return f"no bill of a model ({type(error).__name__}: {str(error)[:100]})"
    if said != (MODEL, name, model.digest, model.digest[:12], True):
        return f"it is about {said[1]} {said[3]} by {kind}, and this is {name} {model.digest[:12]}"
    wrong = sorted(one for one in {*listed, *files} if listed.get(one) != files.get(one))
    return f"it has another digest of {wrong[0]}" if wrong else ""


def _digest(component: Mapping[str, Any], kind: str) -> str:
    return next((str(one["content"]) for one in component["hashes"] if one["alg"] == kind), "")
