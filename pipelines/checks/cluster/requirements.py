"""Read what a graph's steps require of a cluster, from the compiled graph and the run's parameters."""

import re
from collections.abc import Iterable, Iterator, Mapping
from graphlib import TopologicalSorter
from typing import Any, Literal, NamedTuple

from pipelines.checks.cluster.graph import Graph, accelerator_count, accelerator_type, parameters_of
from pipelines.graph.store_secret import STORE_ENDPOINT
from qinglan.lineage.signing.keys import MOUNTED_KEYS
from qinglan.lineage.signing.trust import TRUST_VARIABLE
from qinglan.store.s3_connection import ACCESS_KEY_VARIABLE

Kind = Literal["Secret", "ConfigMap", "PersistentVolumeClaim", "ServiceAccount", "Service"]
GATEWAY = "gateway_url"
"""Name of the parameter with the gateway's URL; every step that calls the gateway has it."""

SERVICE = re.compile(r"https?://([a-z0-9-]+)(:\d+)?(/.*)?")
"""An address within the run's own namespace: its host is a name without a dot."""

PARAMETER = re.compile(r"\{\{\$\.inputs\.parameters\['([^']+)'\]\}\}")


class RequiredObject(NamedTuple):
    """An object without which the pods of `steps` cannot start."""

    kind: Kind
    name: str
    keys: frozenset[str]
    """Keys that the object must hold."""

    steps: tuple[str, ...]


class NodeRequest(NamedTuple):
    """Resources of a node for the pods of `steps`, or for the pods of the job that each of the steps launches."""

    steps: tuple[str, ...]
    asks: Mapping[str, float]
    """Amounts for one node, by resource: cores, bytes, accelerators."""

    nodes: int
    labels: Mapping[str, str]
    job: bool
    """True if the step's PyTorchJob requests the resources; the step's own pod then requests none."""


class ImportedInputs(NamedTuple):
    """Imported inputs that KFP's launcher fetches for `steps`, with the key in the steps' environment."""

    uris: tuple[str, ...]
    steps: tuple[str, ...]
    secret: str
    """The Secret that holds this key; "" if the graph gives the steps no Secret."""


class RolloutTarget(NamedTuple):
    """The namespace in which `steps` create a ModelRollout."""

    namespace: str
    steps: tuple[str, ...]


class ReleaseStore(NamedTuple):
    """An S3 store to which `steps` push a release, or from which they read one."""

    address: str
    steps: tuple[str, ...]
    secret: str
    """The Secret with the store's address and keys; "" if the graph gives the steps no Secret."""


class Requirements(NamedTuple):
    objects: tuple[RequiredObject, ...]
    machines: tuple[NodeRequest, ...]
    images: tuple[str, ...]
    service_account: str
    inputs: tuple[ImportedInputs, ...] = ()
    rollouts: tuple[RolloutTarget, ...] = ()
    releases: tuple[ReleaseStore, ...] = ()


class ContainerTask(NamedTuple):
    """A task that runs a container, with its parameters."""

    name: str
    component: Mapping[str, Any]
    container: Mapping[str, Any]
    pod: Mapping[str, Any]
    scope: Mapping[str, Any]
    """Parameters of the task, which override those of the graph around it."""

    uris: tuple[str, ...]
    """Addresses of the imported artifacts that the task takes."""


def read_requirements(graph: Graph, parameters: Mapping[str, Any], service_account: str) -> Requirements:
    """Collect everything that must exist before the run starts, even if only a step hours later needs it."""
    containers = list(steps(graph, parameters))
    required: dict[tuple[Kind, str], tuple[set[str], list[str]]] = {}
    for step in containers:
        for kind, name, keys in _objects(step):
            all_keys, users = required.setdefault((kind, name), (set(), []))
            all_keys.update(keys)
            users.append(step.name)
    objects = [
        RequiredObject("ServiceAccount", service_account, frozenset(), tuple(step.name for step in containers))
    ]
    objects += [
        RequiredObject(kind, name, frozenset(keys), tuple(dict.fromkeys(users)))
        for (kind, name), (keys, users) in required.items()
    ]
    machines = _machines(containers)
    images = dict.fromkeys(str(step.container["image"]) for step in containers)
    return Requirements(
        tuple(objects), tuple(machines), tuple(images), service_account, _inputs(containers),
        _rollouts(containers), _releases(containers),
    )  # fmt: skip


def steps(graph: Graph, parameters: Mapping[str, Any]) -> Iterator[ContainerTask]:
    yield from _steps(graph, graph.spec["root"], {**_defaults(graph.spec["root"]), **parameters}, {})


def _steps(
    graph: Graph, component: Mapping[str, Any], scope: Mapping[str, Any], outer: Mapping[str, str]
) -> Iterator[ContainerTask]:
    """Walk one graph; `outer` holds the addresses of imported artifacts that the graph around it passes in."""
    executors, tasks = graph.spec["deploymentSpec"]["executors"], component["dag"]["tasks"]
    imported: dict[str, str] = {}
    # A compiled graph has its tasks sorted by name; an importer must come before the tasks that take its artifact.
    for name in TopologicalSorter(
        {name: task.get("dependentTasks", ()) for name, task in tasks.items()}
    ).static_order():
        task, inner = tasks[name], graph.spec["components"][tasks[name]["componentRef"]["name"]]
        sources = task.get("inputs", {}).get("parameters", {})
        values = {**_defaults(inner), **{parameter: _value(source, scope) for parameter, source in sources.items()}}
        uris = {}
        for artifact, source in task.get("inputs", {}).get("artifacts", {}).items():
            producer = source.get("taskOutputArtifact", {}).get("producerTask")
            if address := imported.get(producer) or outer.get(source.get("componentInputArtifact", "")):
                uris[artifact] = address
        if "dag" in inner:
            yield from _steps(graph, inner, values, uris)
            continue
        executor = executors[inner["executorLabel"]]
        if "importer" in executor:
            source = executor["importer"]["artifactUri"]
            parameter = source.get("runtimeParameter")
            imported[name] = str(values.get(parameter) if parameter else _value(source, values))
        elif "container" in executor:
            pod = graph.platform.get(inner["executorLabel"], {})
            shown = task.get("taskInfo", {}).get("name", name)
            addresses = tuple(dict.fromkeys(uris.values()))
            yield ContainerTask(shown, inner, executor["container"], pod, {**scope, **values}, addresses)


def _defaults(component: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: definition["defaultValue"]
        for name, definition in parameters_of(component).items()
        if "defaultValue" in definition
    }


def _value(source: Mapping[str, Any], scope: Mapping[str, Any]) -> Any:
    """Return a parameter's value if it is known before the run; None for the output of a step."""
    if "componentInputParameter" in source:
        return scope.get(source["componentInputParameter"])
    constant = source.get("runtimeValue", {}).get("constant", source.get("constant"))
    return _filled(constant, scope)


def _filled(constant: Any, scope: Mapping[str, Any]) -> Any:
    parameter = PARAMETER.fullmatch(constant) if isinstance(constant, str) else None
    return scope.get(parameter[1]) if parameter else constant


def _objects(step: ContainerTask) -> Iterator[tuple[Kind, str, frozenset[str]]]:
    pod = step.pod
    for mount in _required(pod, "secretAsEnv"):
        yield "Secret", _named(mount, "secretName", step), frozenset(key["secretKey"] for key in mount["keyToEnv"])
    for mount in _required(pod, "secretAsVolume"):
        name, keys = _named(mount, "secretName", step), set()
        if mount["mountPath"] == str(MOUNTED_KEYS):  # the releasing steps sign with both keys
            keys = {"builder.pem", "releaser.pem"} if "release" in name else {"builder.pem"}
        yield "Secret", name, frozenset(keys)
    # kubernetes.io/dockerconfigjson is the only type that kubectl creates for a registry today.
    for mount in pod.get("imagePullSecret", ()):
        yield "Secret", _named(mount, "secretName", step), frozenset({".dockerconfigjson"})
    for mount in _required(pod, "configMapAsEnv"):
        keys = {key["configMapKey"] for key in mount["keyToEnv"]}
        yield "ConfigMap", _named(mount, "configMapName", step), frozenset(keys)
    for mount in _required(pod, "configMapAsVolume"):
        yield "ConfigMap", _named(mount, "configMapName", step), frozenset()
    for mount in pod.get("pvcMount", ()):
        if name := mount.get("constant") or _value(mount.get("pvcNameParameter", mount), step.scope):
            yield "PersistentVolumeClaim", str(name), frozenset()
    if GATEWAY in parameters_of(step.component) and (service := SERVICE.fullmatch(str(step.scope.get(GATEWAY)))):
        yield "Service", service[1], frozenset()


def _required(pod: Mapping[str, Any], field: str) -> list[Any]:
    return [mount for mount in pod.get(field, ()) if not mount.get("optional")]


def _named(source: Mapping[str, Any], field: str, step: ContainerTask) -> str:
    return str(_value(source.get(f"{field}Parameter", {}), step.scope) or source.get(field))


def _inputs(steps: Iterable[ContainerTask]) -> tuple[ImportedInputs, ...]:
    groups: dict[str, list[ContainerTask]] = {}
    for step in steps:
        if step.uris:
            groups.setdefault(_store_secret(step), []).append(step)
    return tuple(
        ImportedInputs(
            tuple(dict.fromkeys(uri for step in group for uri in step.uris)),
            tuple(step.name for step in group),
            secret,
        )
        for secret, group in groups.items()
    )


def _store_secret(step: ContainerTask, variable: str = ACCESS_KEY_VARIABLE) -> str:
    for source in step.pod.get("secretAsEnv", ()):
        if variable in {key["envVar"] for key in source["keyToEnv"]}:
            return _named(source, "secretName", step)
    return ""


def _rollouts(steps: Iterable[ContainerTask]) -> tuple[RolloutTarget, ...]:
    """Find the namespaces of rollouts: only a step that deploys has a `namespace` setting and the trust policy."""
    groups: dict[str, list[str]] = {}
    for step in steps:
        trust = [key["envVar"] for source in step.pod.get("configMapAsEnv", ()) for key in source["keyToEnv"]]
        namespace = _setting(step, "namespace")
        if namespace and TRUST_VARIABLE in trust:
            groups.setdefault(namespace, []).append(step.name)
    return tuple(RolloutTarget(namespace, tuple(names)) for namespace, names in groups.items())


def _releases(steps: Iterable[ContainerTask]) -> tuple[ReleaseStore, ...]:
    groups: dict[tuple[str, str], list[str]] = {}
    for step in steps:
        address = _setting(step, "store")
        if address.startswith("s3://"):
            groups.setdefault((address, _store_secret(step, STORE_ENDPOINT)), []).append(step.name)
    return tuple(ReleaseStore(address, tuple(names), secret) for (address, secret), names in groups.items())


def _setting(step: ContainerTask, name: str) -> str:
    """Return a setting of the step's stage; "" if the stage has no such setting."""
    config = step.scope.get("config")
    return str(config.get(name) or "") if isinstance(config, Mapping) else ""


def _machines(containers: Iterable[ContainerTask]) -> list[NodeRequest]:
    groups: list[NodeRequest] = []
    for step in containers:
        if not (request := _node_request(step)):
            continue
        for at, group in enumerate(groups):
            if group._replace(steps=()) == request._replace(steps=()):
                groups[at] = group._replace(steps=(*group.steps, step.name))
                break
        else:
            groups.append(request)
    return groups


def _node_request(step: ContainerTask) -> NodeRequest | None:
    from kubernetes.utils.quantity import parse_quantity

    resources = step.container.get("resources", {})
    accelerator = resources.get("accelerator", {})
    requests = {
        _filled(accelerator_type(accelerator), step.scope): accelerator_count(accelerator),
        "cpu": resources.get("resourceCpuRequest"),
        "memory": resources.get("resourceMemoryRequest"),
    }
    filled = {name: _filled(count, step.scope) for name, count in requests.items() if name}
    asks = {str(name): count for name, text in filled.items() if text and (count := float(parse_quantity(text)))}
    if not asks:
        return None
    # A step that passes its RESOURCES on to a PyTorchJob requests none for its own pod (kfp.dsl.TaskConfigField).
    launches = any(
        passthrough.get("field") == "RESOURCES" and not passthrough.get("applyToTask")
        for passthrough in step.component.get("taskConfigPassthroughs", ())
    )
    nodes = 1
    if launches and isinstance(config := step.scope.get("config"), Mapping):  # sft has `nodes`, ppo `hardware.nodes`
        nodes = int(config.get("nodes") or (config.get("hardware") or {}).get("nodes") or 1)
    selector = step.pod.get("nodeSelector", {})
    chosen = _value(selector.get("nodeSelectorJson", {}), step.scope)
    labels = {**selector.get("labels", {}), **(chosen if isinstance(chosen, Mapping) else {})}
    return NodeRequest((step.name,), asks, nodes, labels, launches)
