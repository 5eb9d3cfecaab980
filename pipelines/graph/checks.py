"""Check a compiled graph before it is started. Only its two YAML documents are read; no component is imported.

    check_compiled(text, release=True)      # the faults as sentences; empty if the graph may be started

Only faults that a profile's settings can cause are checked: arguments that are too long, images by tag, for which
KFP's cache may answer with results of old code, and keys in parameters, which every user sees.
"""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

ARGUMENT_BYTES = 100_000
"""Bytes at which an argument is too long: Linux allows 128 KiB, and KFP's launcher puts all parameters into one."""

OUTSIDE = ("register", "deploy", "launch", "rollout")
"""Prefixes of the task names of stages that change something outside of the run."""

DIGEST = re.compile(r"@sha256:[0-9a-f]{64}$")
SECRET_NAME = re.compile(
    r"(^|[_.-])(secret|password|passwd|credentials?|api_?key|private_?key|access_?key|token)s?($|[_.-])", re.I
)
SECRET_TEXT = re.compile(r"\bsk-[\w-]{16,}|\bAKIA[0-9A-Z]{16}\b|-----BEGIN [A-Z ]*PRIVATE KEY|\bgh[pousr]_\w{30,}")


class ExecutorStep(NamedTuple):
    """An executor that runs a container, with the tasks that use it."""

    label: str
    container: Mapping[str, Any]
    handed: frozenset[str]
    """Names of the task settings that the step passes on to a job that it launches."""

    tasks: Mapping[str, Mapping[str, Any]]
    """The tasks that run this executor, by name."""


def check_compiled(text: str, release: bool = False) -> list[str]:
    """List every fault of the graph. For a release, an image without a digest is also a fault."""
    import yaml

    try:
        documents = list(yaml.load_all(text, Loader=yaml.CSafeLoader))
    except yaml.YAMLError as error:
        return [f"No YAML: {' '.join(str(error).split())}."]
    if len(documents) != 2 or not all(isinstance(document, dict) for document in documents):
        return ["No compiled graph: two documents are expected, the graph and what Kubernetes is told of its pods."]
    spec = documents[0]
    faults = [*_parameters(spec), *_secrets(text)]
    for step in _steps(spec):
        faults += [f"{step.label}: {fault}" for fault in _faults(step, release)]
    return faults


def _steps(spec: Mapping[str, Any]) -> Iterator[ExecutorStep]:
    components = spec.get("components", {})
    tasks = [
        (name, task)
        for component in (spec.get("root", {}), *components.values())
        for name, task in component.get("dag", {}).get("tasks", {}).items()
    ]
    for label, executor in spec.get("deploymentSpec", {}).get("executors", {}).items():
        if "container" not in executor:
            continue  # an importer
        step_components = {
            name: component for name, component in components.items() if component.get("executorLabel") == label
        }
        handed = {
            passthrough["field"]
            for component in step_components.values()
            for passthrough in component.get("taskConfigPassthroughs", ())
            if not passthrough.get("applyToTask")
        }
        ran = {name: task for name, task in tasks if task.get("componentRef", {}).get("name") in step_components}
        yield ExecutorStep(label, executor["container"], frozenset(handed), ran)


def _faults(step: ExecutorStep, release: bool) -> Iterator[str]:
    yield from _image_faults(step, release)
    for variable in step.container.get("env", ()):
        if SECRET_NAME.search(variable.get("name", "")):
            yield f"{variable['name']} is written into the graph; take it from a Secret."
    yield from _argument_faults(step)


def _image_faults(step: ExecutorStep, release: bool) -> Iterator[str]:
    image = str(step.container.get("image", ""))
    cached = sorted(name for name, task in step.tasks.items() if task.get("cachingOptions", {}).get("enableCache"))
    if not image:
        yield "there is no image."
    elif not DIGEST.search(image):
        if release:
            yield f"image {image} has no digest. Give --image NAME=REFERENCE@sha256:DIGEST."
        if cached:
            yield f"{', '.join(cached)} is cached by image {image}: behind a tag there is other code tomorrow."
    if outside := [name for name in cached if name.startswith(OUTSIDE) or step.handed]:
        yield f"{', '.join(outside)} acts outside of the run, and KFP's cache would leave that undone."


def _argument_faults(step: ExecutorStep) -> Iterator[str]:
    words = [str(word) for part in ("command", "args") for word in step.container.get(part, ())]
    for task in step.tasks.values():
        parameters = task.get("inputs", {}).get("parameters", {}).values()
        constants = (parameter.get("runtimeValue", {}).get("constant") for parameter in parameters)
        words += [json.dumps(constant, ensure_ascii=False) for constant in constants]
    longest = max((len(word.encode()) for word in words), default=0)
    if longest >= ARGUMENT_BYTES:
        yield f"an argument has {longest:,} bytes; {ARGUMENT_BYTES:,} are too many for a process."


def _parameters(spec: Mapping[str, Any]) -> Iterator[str]:
    """Find parameters that look like secrets, because KFP shows parameters to everybody who may see the run."""
    components = (spec.get("root", {}), *spec.get("components", {}).values())
    names = {name for component in components for name in component.get("inputDefinitions", {}).get("parameters", {})}
    for name in sorted(names):
        if SECRET_NAME.search(name):
            yield f"Parameter {name} looks like a secret; a Secret's key belongs into the environment, never here."


def _secrets(text: str) -> Iterator[str]:
    for match in SECRET_TEXT.finditer(text):
        line = text.count("\n", 0, match.start()) + 1
        yield f"Line {line} looks like a key ({match[0][:6]}...); whoever sees the graph has it. Revoke it."
