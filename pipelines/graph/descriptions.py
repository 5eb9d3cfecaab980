"""Descriptions of a graph: of its parameters, its steps, and their outputs.

An artifact is described in its line, a step in the docstring of its component, and everything else here. A step's
input has no description: it is described as another step's output or as a parameter of the run, and a run's Workflow
would repeat the text eight times for every step that takes the input.
"""

import copy
import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any

from pipelines.lines.line import LINEAGE, Stage

RELEASE = "Tenant and model under which what passes is registered, and asked for in production."
DESCRIPTIONS = {
    "gateway_state": "Digest of the gateway's models, prices and knowledge bases, which KFP's cache compares.",
    "gateway_url": "The gateway of this run, the only way to the paid models and to the RAG service.",
    "monitor_url": "The gateway that shows the training while it runs.",
    "name": RELEASE,
    "release_name": RELEASE,
    LINEAGE: "Signed statements up to this step.",
    "Output": "The verdict: `promote` or `hold`.",
    "classification": "The confusion matrix on the locked test.",
    "decision": "The verdict and its reasons.",
    "summary": "The result in short; read this first.",
}
"""Descriptions, by name, of a graph's and its steps' parameters, and of artifacts that no line declares."""

METRICS = "_metrics"
"""The ending of an output with a step's figures."""


def describe_component(component: Any, artifacts: Mapping[str, str]) -> Any:
    """Copy the component, with a description of each output; `artifacts` describes the line's artifacts, by name."""
    descriptions = {**DESCRIPTIONS, **artifacts}
    spec, described = component.component_spec, copy.copy(component)
    described.component_spec = dataclasses.replace(spec, outputs=_described(spec.outputs or {}, descriptions))
    return described


def _described(items: Mapping[str, Any], descriptions: Mapping[str, str]) -> dict[str, Any]:
    described = {}
    for name, item in items.items():
        description = "The step's figures." if name.endswith(METRICS) else descriptions.get(name)
        described[name] = dataclasses.replace(item, description=description)
    return described


def describe_graph(about: str, parameters: Mapping[str, str], stages: Iterable[Stage]) -> str:
    """Describe the graph in Markdown, with its parameters and steps, which KFP's page shows nowhere else."""
    lines = [about, "", "A run is started with the service account `pipeline-runner`, and with:", ""]
    lines += [f"- `{name}`: {description}" for name, description in parameters.items()]
    lines += ["", "Its steps:", ""]
    lines += [f"- `{stage.name}`: {stage.load_component().description}" for stage in stages]
    return "\n".join(lines)
