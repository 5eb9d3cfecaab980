"""The requirements of a graph's steps on a cluster, read from the compiled graph with the run's parameters."""

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
"""The parameter of every step that calls the gateway."""

SERVICE = re.compile(r"https?://([a-z0-9-]+)(:\d+)?(/.*)?")
"""An address of the run's own namespace: a name without a dot."""

PARAMETER = re.compile(r"\{\{\$\.inputs\.parameters\['([^']+)'\]\}\}")


class RequiredObject(NamedTuple):
    """An object that pods of these steps cannot start without."""

    kind: Kind
    name: str
    keys: frozenset[str]
    """Keys that it must hold."""

    steps: tuple[str, ...]


class NodeRequest(NamedTuple):
    """The resources that the pods of these steps, or of the job that each launches, ask of a node."""

    steps: tuple[str, ...]
    asks: Mapping[str, float]
    """Amounts for one node, by resource: cores, bytes, accelerators."""

    nodes: int
    labels: Mapping[str, str]
    job: bool
    """True if the step's PyTorchJob requests it; the step's own pod then requests nothing."""


class ImportedInputs(NamedTuple):
    """Imported inputs that KFP's launcher fetches for these steps, with the key in the steps' environment."""

    uris: tuple[str, ...]
    steps: tuple[str, ...]
    secret: str
    """The Secret that holds this key; "" if the graph gives these steps none."""


class RolloutTarget(NamedTuple):
    """The namespace in which these steps create a ModelRollout."""

    namespace: str
    steps: tuple[str, ...]


class ReleaseStore(NamedTuple):
    """An S3 store that these steps push a release to, or read one from."""

    address: str
    steps: tuple[str, ...]
    secret: str
    """The Secret with its address and keys; "" if the graph gives these steps none."""


class Requirements(NamedTuple):
    objects: tuple[RequiredObject, ...]
    machines: tuple[NodeRequest, ...]
    images: tuple[str, ...]
    service_account: str
    inputs: tuple[ImportedInputs, ...] = ()
    rollouts: tuple[RolloutTarget, ...] = ()
    releases: tuple[ReleaseStore, ...] = ()


class ContainerTask(NamedTuple):
    """A task that runs a container, with the parameters it is given."""

    name: str
    component: Mapping[str, Any]
    container: Mapping[str, Any]
    pod: Mapping[str, Any]
    scope: Mapping[str, Any]
    """Its parameters, laid over those of the graph around it."""

    uris: tuple[str, ...]
    """Addresses of the imported artifacts that it takes."""


def read_requirements(graph: Graph, parameters: Mapping[str, Any], service_account: str) -> Requirements:
    """Everything that must exist before the first step starts, even if only the last step uses it, hours later."""
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
    """Every task that runs a container, also in branches."""
    yield from _steps(graph, graph.spec["root"], {**_defaults(graph.spec["root"]), **parameters}, {})


def _steps(
    graph: Graph, component: Mapping[str, Any], scope: Mapping[str, Any], outer: Mapping[str, str]
) -> Iterator[ContainerTask]:
    """Walk one graph; `outer` holds the addresses of imported artifacts that the graph around it passes in."""
    executors = graph.spec["deploymentSpec"]["executors"]
    imported: dict[str, str] = {}
    for name, task in _in_order(component["dag"]["tasks"]):
        inner = graph.spec["components"][task["componentRef"]["name"]]
        sources = task.get("inputs", {}).get("parameters", {})
        taken = {parameter: _value(source, scope) for parameter, source in sources.items()}
        values = {**_defaults(inner), **taken}
        uris = _uris(task, imported, outer)
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


def _uris(task: Mapping[str, Any], imported: Mapping[str, str], outer: Mapping[str, str]) -> dict[str, str]:
    """The address of each imported artifact that a task takes, by the task's name for it."""
    addresses = {}
    for name, source in task.get("inputs", {}).get("artifacts", {}).items():
        producer = source.get("taskOutputArtifact", {}).get("producerTask")
        address = imported.get(producer) or outer.get(source.get("componentInputArtifact", ""))
        if address:
            addresses[name] = address
    return addresses


def _in_order(tasks: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Tasks in the order in which they run; in a compiled graph they are sorted by name."""
    before = {name: task.get("dependentTasks", ()) for name, task in tasks.items()}
    yield from ((name, tasks[name]) for name in TopologicalSorter(before).static_order())


def _defaults(component: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: definition["defaultValue"]
        for name, definition in parameters_of(component).items()
        if "defaultValue" in definition
    }


def _value(source: Mapping[str, Any], scope: Mapping[str, Any]) -> Any:
    """A parameter's value if it is known before the run; None for the output of a step."""
    if "componentInputParameter" in source:
        return scope.get(source["componentInputParameter"])
    constant = source.get("runtimeValue", {}).get("constant", source.get("constant"))
    return _filled(constant, scope)


def _filled(constant: Any, scope: Mapping[str, Any]) -> Any:
    parameter = PARAMETER.fullmatch(constant) if isinstance(constant, str) else None
    return scope.get(parameter[1]) if parameter else constant


def _objects(step: ContainerTask) -> Iterator[tuple[Kind, str, frozenset[str]]]:
    """The objects that this step's pod needs to start."""
    pod = step.pod
    for mount in pod.get("secretAsEnv", ()):
        if not mount.get("optional"):
            yield (
                "Secret",
                _named(mount, "secretName", step),
                frozenset(key["secretKey"] for key in mount["keyToEnv"]),
            )
    for mount in pod.get("secretAsVolume", ()):
        if not mount.get("optional"):
            name = _named(mount, "secretName", step)
            yield "Secret", name, _signing_keys(name) if mount["mountPath"] == str(MOUNTED_KEYS) else frozenset()
    for mount in pod.get("imagePullSecret", ()):
        yield "Secret", _named(mount, "secretName", step), frozenset({".dockerconfigjson"})
    for mount in pod.get("configMapAsEnv", ()):
        if not mount.get("optional"):
            keys = frozenset(key["configMapKey"] for key in mount["keyToEnv"])
            yield "ConfigMap", _named(mount, "configMapName", step), keys
    for mount in pod.get("configMapAsVolume", ()):
        if not mount.get("optional"):
            yield "ConfigMap", _named(mount, "configMapName", step), frozenset()
    for mount in pod.get("pvcMount", ()):
        if name := mount.get("constant") or _value(mount.get("pvcNameParameter", mount), step.scope):
            yield "PersistentVolumeClaim", str(name), frozenset()
    if GATEWAY in parameters_of(step.component) and (service := SERVICE.fullmatch(str(step.scope.get(GATEWAY)))):
        yield "Service", service[1], frozenset()


def _named(source: Mapping[str, Any], field: str, step: ContainerTask) -> str:
    return str(_value(source.get(f"{field}Parameter", {}), step.scope) or source.get(field))


def _signing_keys(secret: str) -> frozenset[str]:
    """The key files that a step needs in the mounted Secret; the releasing steps need both keys."""
    return frozenset({"builder.pem", "releaser.pem"} if "release" in secret else {"builder.pem"})


def _inputs(steps: Iterable[ContainerTask]) -> tuple[ImportedInputs, ...]:
    """Imported inputs, by the Secret that they are fetched with."""
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
    """The Secret that gives a step this variable of an S3 store."""
    for source in step.pod.get("secretAsEnv", ()):
        if variable in {key["envVar"] for key in source["keyToEnv"]}:
            return _named(source, "secretName", step)
    return ""


def _rollouts(steps: Iterable[ContainerTask]) -> tuple[RolloutTarget, ...]:
    """Namespaces of rollouts: those of steps that also get the trust policy."""
    groups: dict[str, list[str]] = {}
    for step in steps:
        trust = [key["envVar"] for source in step.pod.get("configMapAsEnv", ()) for key in source["keyToEnv"]]
        namespace = _setting(step, "namespace")
        if namespace and TRUST_VARIABLE in trust:
            groups.setdefault(namespace, []).append(step.name)
    return tuple(RolloutTarget(namespace, tuple(names)) for namespace, names in groups.items())


def _releases(steps: Iterable[ContainerTask]) -> tuple[ReleaseStore, ...]:
    """The S3 stores of releases, grouped by address and Secret."""
    groups: dict[tuple[str, str], list[str]] = {}
    for step in steps:
        address = _setting(step, "store")
        if address.startswith("s3://"):
            groups.setdefault((address, _store_secret(step, STORE_ENDPOINT)), []).append(step.name)
    return tuple(ReleaseStore(address, tuple(names), secret) for (address, secret), names in groups.items())


def _setting(step: ContainerTask, name: str) -> str:
    """A setting of the step's stage; "" where it has none of this name."""
    config = step.scope.get("config")
    return str(config.get(name) or "") if isinstance(config, Mapping) else ""


def _machines(containers: Iterable[ContainerTask]) -> list[NodeRequest]:
    """Group the steps that request the same resources."""
    groups: list[NodeRequest] = []
    for step in containers:
        if not (request := _node_request(step)):
            continue
        same = [group for group in groups if group._replace(steps=()) == request._replace(steps=())]
        if same:
            groups[groups.index(same[0])] = same[0]._replace(steps=(*same[0].steps, step.name))
        else:
            groups.append(request)
    return groups


def _node_request(step: ContainerTask) -> NodeRequest | None:
    asks = _resource_requests(step.container.get("resources", {}), step.scope)
    if not asks:
        return None
    launches = any(
        passthrough.get("field") == "RESOURCES" and not passthrough.get("applyToTask")
        for passthrough in step.component.get("taskConfigPassthroughs", ())
    )
    nodes = _nodes(step.scope.get("config")) if launches else 1
    return NodeRequest((step.name,), asks, nodes, _labels(step), launches)


def _resource_requests(resources: Mapping[str, Any], scope: Mapping[str, Any]) -> dict[str, float]:
    from kubernetes.utils.quantity import parse_quantity

    accelerator = resources.get("accelerator", {})
    requests = {
        _filled(accelerator_type(accelerator), scope): _filled(accelerator_count(accelerator), scope),
        "cpu": _filled(resources.get("resourceCpuRequest"), scope),
        "memory": _filled(resources.get("resourceMemoryRequest"), scope),
    }
    counts = {str(name): float(parse_quantity(count)) for name, count in requests.items() if name and count}
    return {name: count for name, count in counts.items() if count}


def _nodes(config: Any) -> int:
    """The number of a training's machines: in sft `nodes`, in ppo `hardware.nodes`."""
    if not isinstance(config, Mapping):
        return 1
    hardware = config.get("hardware")
    return int(config.get("nodes") or (isinstance(hardware, Mapping) and hardware.get("nodes")) or 1)


def _labels(step: ContainerTask) -> dict[str, str]:
    selector = step.pod.get("nodeSelector", {})
    read = _value(selector.get("nodeSelectorJson", {}), step.scope)
    return {**selector.get("labels", {}), **(read if isinstance(read, Mapping) else {})}
