"""Check a compiled graph before it is sent, and read which parameters it takes.

KFP's API server accepts graphs that can never run, and an upload that does not parse keeps it busy without end. So
each graph is checked here before it is sent.
"""

import json
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

from pipelines.graph.checks import check_compiled
from qinglan.documents import parse_yaml_documents
from qinglan.errors import ConfigError

COMPILE = "Compile it anew with `qinglan compile`."


class Graph(NamedTuple):
    """The two YAML documents of a compiled graph (pipeline and pod settings), and the bytes of their file."""

    path: Path
    text: bytes
    spec: dict[str, Any]
    platform: dict[str, Any]
    """The Kubernetes settings of each executor's pods, by executor."""

    @property
    def name(self) -> str:
        return str(self.spec["pipelineInfo"]["name"])

    @property
    def description(self) -> str | None:
        """Tenant, profile and machine, as KFP's page shows them."""
        text: str | None = self.spec["pipelineInfo"].get("description")
        return text

    @property
    def digest(self) -> str:
        return sha256(self.text).hexdigest()

    @property
    def parameters(self) -> dict[str, dict[str, Any]]:
        return parameters_of(self.spec["root"])


def read_graph(path: Path) -> Graph:
    """Read a graph; ConfigError if KFP could not run it."""
    try:
        text = path.read_bytes()
        documents = parse_yaml_documents(text.decode("utf-8"), str(path))
    except FileNotFoundError as error:
        raise ConfigError(f"{path}: no such file. {COMPILE}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: not readable as YAML: {error}. Nothing was sent. {COMPILE}") from error
    except ConfigError as error:
        raise ConfigError(f"{error} Nothing was sent. {COMPILE}") from error
    if len(documents) != 2 or not all(isinstance(document, dict) for document in documents):
        raise ConfigError(f"{path}: is no compiled graph: two documents are expected. {COMPILE}")
    spec, platform = (_of_form(path, *pair) for pair in zip(documents, ("PipelineSpec", "PlatformSpec"), strict=True))
    tasks = spec.get("root", {}).get("dag", {}).get("tasks")
    if faults := check_compiled(text.decode("utf-8")) if tasks else ["The graph has no task."]:
        raise ConfigError(f"{path}: {' '.join(faults)} {COMPILE}")
    pods = platform.get("platforms", {}).get("kubernetes", {}).get("deploymentSpec", {}).get("executors", {})
    return Graph(path, text, spec, pods)


# KFP's API server begins with the same conversion, so it would reject, after the upload, what fails here.
def _of_form(path: Path, document: dict[str, Any], form: str) -> dict[str, Any]:
    from google.protobuf import json_format
    from kfp.pipeline_spec import pipeline_spec_pb2

    try:
        json_format.ParseDict(document, getattr(pipeline_spec_pb2, form)())
    except json_format.ParseError as error:
        raise ConfigError(f"{path}: KFP would not read it as {form}: {error}. {COMPILE}") from error
    return document


def accelerator_type(accelerator: Mapping[str, Any]) -> str:
    return str(accelerator.get("resourceType") or accelerator.get("type") or "")


def accelerator_count(accelerator: Mapping[str, Any]) -> Any:
    return accelerator.get("resourceCount") or accelerator.get("count")


def parameters_of(component: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    parameters: dict[str, dict[str, Any]] = component.get("inputDefinitions", {}).get("parameters", {})
    return parameters


def read_parameters(graph: Graph, values: Mapping[str, Any]) -> dict[str, Any]:
    """Convert values to the types of the graph's parameters; ConfigError for unknown, missing or invalid values."""
    parameters = graph.parameters
    if unknown := sorted(set(values) - set(parameters)):
        raise ConfigError(f"{graph.name} takes no {', '.join(unknown)}. It takes: {', '.join(sorted(parameters))}.")
    missing = []
    for name, definition in sorted(parameters.items()):
        if name not in values and not definition.get("isOptional") and "defaultValue" not in definition:
            about = definition.get("description", "").strip().rstrip(".")
            missing.append(f"{name} ({about})" if about else name)
    if missing:
        raise ConfigError(
            f"{graph.name} also needs: {'; '.join(missing)}. Give each with its option, or as --set NAME=VALUE."
        )
    return {name: _typed(name, value, parameters[name]["parameterType"]) for name, value in values.items()}


# Types of a parameter in KFP's PipelineSpec, as JSON gives them in Python; bool is a subclass of int.
KINDS: dict[str, tuple[type, ...]] = {
    "NUMBER_INTEGER": (int,), "NUMBER_DOUBLE": (int, float), "BOOLEAN": (bool,), "LIST": (list,), "STRUCT": (dict,),
}  # fmt: skip


def _typed(name: str, value: Any, kind: str) -> Any:
    if kind not in KINDS:
        return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError as error:
            raise ConfigError(f"--set {name}={value}: is no {kind}, written as JSON.") from error
    if not isinstance(value, KINDS[kind]) or (isinstance(value, bool) and kind != "BOOLEAN"):
        raise ConfigError(f"--set {name}={json.dumps(value, ensure_ascii=False)}: is no {kind}.")
    return value
