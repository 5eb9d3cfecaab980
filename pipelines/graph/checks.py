"""Check a compiled graph before it is started. Only its two YAML documents are read; no component is imported.

    check_compiled(text, release=True)      # the faults as sentences; empty if the graph may be started

KFP accepts graphs that cannot run or do not do what was meant: it ignores an accelerator without a type, a cached
step whose image is a tag may return results of old code, and parameters are visible to every user.
"""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

GPU = "nvidia.com/gpu"
ARGUMENT_BYTES = 100_000
"""Longest argument that is accepted: Linux's limit is 128 KiB, and KFP's launcher puts all parameters into one."""

OUTSIDE = ("register", "deploy", "launch", "rollout")
"""Prefixes of the task names of stages that change something outside of the run."""

DIGEST = re.compile(r"@sha256:[0-9a-f]{64}$")
SECRET_NAME = re.compile(
    r"(^|[_.-])(secret|password|passwd|credentials?|api_?key|private_?key|access_?key|token)s?($|[_.-])", re.I
)
SECRET_TEXT = re.compile(r"\bsk-[\w-]{16,}|\bAKIA[0-9A-Z]{16}\b|-----BEGIN [A-Z ]*PRIVATE KEY|\bgh[pousr]_\w{30,}")


class ExecutorStep(NamedTuple):
    """An executor that runs a container, with its pod settings and the tasks that use it."""

    label: str
    container: Mapping[str, Any]
    pod: Mapping[str, Any]
    """The executor's Kubernetes settings, from the platform document."""

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
    spec, platform = documents
    faults = [*_parameters(spec), *_secrets(text)]
    for step in _steps(spec, platform):
        faults += [f"{step.label}: {fault}" for fault in _faults(step, release)]
    return faults


def _steps(spec: Mapping[str, Any], platform: Mapping[str, Any]) -> Iterator[ExecutorStep]:
    components = spec.get("components", {})
    pods = platform.get("platforms", {}).get("kubernetes", {}).get("deploymentSpec", {}).get("executors", {})
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
        yield ExecutorStep(label, executor["container"], pods.get(label, {}), frozenset(handed), ran)


def _faults(step: ExecutorStep, release: bool) -> Iterator[str]:
    yield from _image_faults(step, release)
    for variable in step.container.get("env", ()):
        if SECRET_NAME.search(variable.get("name", "")):
            yield f"{variable['name']} is written into the graph; take it from a Secret."
    yield from _argument_faults(step)
    yield from _pod_faults(step)
    yield from _gpu_faults(step)


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
    if any("pip install" in word for word in words):
        yield "it installs packages when it starts; its image holds all it needs."
    for task in step.tasks.values():
        parameters = task.get("inputs", {}).get("parameters", {}).values()
        constants = (parameter.get("runtimeValue", {}).get("constant") for parameter in parameters)
        words += [json.dumps(constant, ensure_ascii=False) for constant in constants]
    longest = max((len(word.encode()) for word in words), default=0)
    if longest >= ARGUMENT_BYTES:
        yield f"an argument has {longest:,} bytes; {ARGUMENT_BYTES:,} are too many for a process."


def _pod_faults(step: ExecutorStep) -> Iterator[str]:
    resources, context = step.container.get("resources", {}), step.pod.get("securityContext", {})
    needed = ("resourceCpuRequest", "resourceCpuLimit", "resourceMemoryRequest", "resourceMemoryLimit")
    if missing := [name.removeprefix("resource") for name in needed if not resources.get(name)]:
        yield f"no {', '.join(missing)}; a namespace with a quota refuses its pod."
    if not context.get("runAsNonRoot") or not int(context.get("runAsUser", 0)):
        yield "it may run as root; Pod Security refuses that."
    if int(step.pod.get("activeDeadlineSeconds", 0)) <= 0:
        yield "nothing ends it when it hangs; set a timeout."


# KFP 2.17's driver adds an accelerator to a pod only if type and count are both set, and adds no toleration itself.
def _gpu_faults(step: ExecutorStep) -> Iterator[str]:
    accelerator = step.container.get("resources", {}).get("accelerator", {})
    kind, count = (accelerator.get(name) for name in ("resourceType", "resourceCount"))
    if not accelerator:
        return
    if not (kind and count):
        yield "an accelerator needs its type and its count; with one of them the back end asks for none."
    if not any(toleration.get("key") == GPU for toleration in step.pod.get("tolerations", ())):
        yield f"it asks for GPUs and does not tolerate the taint {GPU} of the nodes that have them."
    # Without a volume /dev/shm of a container has 64 MiB, the container runtime's default; NCCL and PyTorch's data
    # loaders exchange tensors there.
    shared = any(mount.get("mountPath") == "/dev/shm" for mount in step.pod.get("emptyDirMounts", ()))
    if not shared and "RESOURCES" not in step.handed:
        yield "it asks for GPUs and mounts no memory at /dev/shm; 64 MiB are too few for data loaders and NCCL."


def _parameters(spec: Mapping[str, Any]) -> Iterator[str]:
    """Check the parameters: KFP shows them to everybody who may see the run."""
    of_run = spec.get("root", {}).get("inputDefinitions", {}).get("parameters", {})
    for name, definition in of_run.items():
        if not str(definition.get("description", "")).strip():
            yield f"Parameter {name} has no description; people start runs by them."
    names = set(of_run)
    for component in spec.get("components", {}).values():
        names |= set(component.get("inputDefinitions", {}).get("parameters", {}))
    for name in sorted(names):
        if SECRET_NAME.search(name):
            yield f"Parameter {name} looks like a secret; a Secret's key belongs into the environment, never here."


def _secrets(text: str) -> Iterator[str]:
    for match in SECRET_TEXT.finditer(text):
        line = text.count("\n", 0, match.start()) + 1
        yield f"Line {line} looks like a key ({match[0][:6]}...); whoever sees the graph has it. Revoke it."
