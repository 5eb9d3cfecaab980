"""Check a model's bill of materials: it must be strict CycloneDX 1.6, with the digests of the release's statement.

https://cyclonedx.org/docs/1.6/json/
"""

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from qinglan.documents import parse_json_mapping
from qinglan.errors import DataError
from qinglan.files.digests import FILE_ALGORITHM, FOLDER_ALGORITHM
from qinglan.files.plain_files import read_plain
from qinglan.lineage.signing.statement import ArtifactRef

CYCLONEDX_HASHES = {FILE_ALGORITHM: "SHA-256", FOLDER_ALGORITHM: "SHA3-256"}
"""CycloneDX's name of each digest algorithm, by the algorithm's name in in-toto."""

MODEL = "machine-learning-model"
MODEL_FILE_PREFIX = "model/"
"""Prefix of the model's files in the bill, which names each file by its path in the release."""


@cache
def _validator() -> Any:
    """Create one validator for all bills, since it reads 400 kB of schemas."""
    from cyclonedx.schema import SchemaVersion
    from cyclonedx.validation.json import JsonStrictValidator

    return JsonStrictValidator(SchemaVersion.V1_6)


def schema_fault(text: str) -> str:
    """Return why a text is not strict CycloneDX 1.6; empty if it is."""
    error = _validator().validate_str(text)
    return "" if error is None else str(error.data if hasattr(error, "data") else error).splitlines()[0][:200]


def bom_fault(path: Path, name: str, model: ArtifactRef, files: Mapping[str, str]) -> str:
    """Return why a file is not this model's bill of materials; empty if its name, digest and files match."""
    # An older statement calls a folder's digest sha256. The bill of such a release does the same.
    kind = CYCLONEDX_HASHES.get(model.algorithm, CYCLONEDX_HASHES[FILE_ALGORITHM])
    try:
        text = read_plain(path).decode()
        bill = parse_json_mapping(text, path.name)
        if why := schema_fault(text):
            return f"not valid CycloneDX 1.6: {why}"
        about = bill["metadata"]["component"]
        listed = {
            component["name"]: _digest(component, CYCLONEDX_HASHES[FILE_ALGORITHM])
            for component in bill["components"]
            if component["name"].startswith(MODEL_FILE_PREFIX)
        }
        subject = (about["type"], about["name"], _digest(about, kind), about["version"], "modelCard" in about)
    except OSError as error:
        return f"cannot be read ({error.strerror})"
    except (ValueError, KeyError, TypeError, RecursionError, DataError) as error:
        return f"not a model's bill of materials ({type(error).__name__}: {str(error)[:100]})"
    if subject != (MODEL, name, model.digest, model.digest[:12], True):
        return f"it is about {subject[1]} {subject[3]} by {kind}, and this is {name} {model.digest[:12]}"
    wrong = sorted(file for file in {*listed, *files} if listed.get(file) != files.get(file))
    return f"it has another digest of {wrong[0]}" if wrong else ""


def _digest(component: Mapping[str, Any], kind: str) -> str:
    return next((str(item["content"]) for item in component["hashes"] if item["alg"] == kind), "")
