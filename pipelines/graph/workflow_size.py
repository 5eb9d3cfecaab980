"""The size of the Workflow that Argo keeps for a run of a compiled graph, computed before anything runs.

    workflow_bytes(spec, platform)      # the two YAML documents of a compiled graph

Argo compresses a workflow of more than 1 MiB, and KFP 2.17 cannot read a compressed one: from then on its page and
its API show an old list of tasks. Nearly all of it is text that each node of the status repeats. A step has three
templates: its driver, a DAG around its executor, and the executor. KFP's own configuration of Argo makes two nodes of
every template: a Retry node and its first attempt (workflowDefaults.templateDefaults.retryStrategy).

    driver    component, task, container and Kubernetes settings; it writes the patch of the step's pod
    DAG       that patch
    executor  that patch

So a step's patch, which holds the metadata of each input artifact, is in the status six times. The sizes follow
backend/src/v2/driver and backend/src/v2/compiler/argocompiler of KFP 2.17. On a real back end a run of two steps
had 18 nodes of 66,388 bytes; this computes 66,604. The rewriter's whole line, with today's metadata and commands, had
74 of 756,594; this computes 752,720.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

ARGO_LIMIT = 1024 * 1024
"""Argo's MAX_WORKFLOW_SIZE; it counts the whole object as JSON."""

METADATA = {"sha256": "0" * 64, "rows": 10_000_000}
"""The metadata that a step gives each artifact (qinglan/lineage/steps/record.py)."""

NODES_OF_A_TEMPLATE = 2
"""The Retry node and its first attempt."""

NODE_BYTES = 850
"""Fields that every node has: ids, names, times, children, resources, host, phase."""

TEMPLATES_BYTES = 16_000
"""The templates of drivers, importers and executors: the same in every graph."""

TASK_BYTES = 2_000
"""A step's two calls in its DAG's template, beside its task."""

LOGS = {"executor-logs": {"artifactType": {"schemaTitle": "system.Artifact"}}}
"""An output that KFP adds to every step."""

ADDRESS = f"minio://mlpipeline/private-artifacts/qinglan/v2/artifacts/qinglan-rewriter/{'0' * 36}/{'0' * 36}/"
"""An artifact's address up to its name: bucket, prefix, namespace, graph, run and a salt of the step's."""

SESSION = json.dumps({
    "Provider": "minio",
    "Params": {
        "accessKeyKey": "accesskey", "disableSSL": "true", "endpoint": "minio-service.kubeflow:9000",
        "forcePathStyle": "true", "fromEnv": "false", "maxRetries": "5", "region": "minio",
        "secretKeyKey": "secretkey", "secretName": "mlpipeline-minio-artifact",
    },
})  # fmt: skip
"""KFP's note on each artifact: how to reach its store."""


class Graph(NamedTuple):
    """The parts of a compiled graph that the status repeats, and the metadata that each artifact gets."""

    components: Mapping[str, Any]
    executors: Mapping[str, Any]
    pods: Mapping[str, Any]
    """Kubernetes settings by executor."""

    metadata: Mapping[str, Any]


def workflow_bytes(
    spec: Mapping[str, Any], platform: Mapping[str, Any], metadata: Mapping[str, Any] = METADATA
) -> int:
    """Bytes of the finished workflow, if every step runs once and each artifact carries such metadata."""
    pods = platform["platforms"]["kubernetes"]["deploymentSpec"]["executors"]
    graph = Graph(spec["components"], spec["deploymentSpec"]["executors"], pods, metadata)
    root = {"component": spec["root"], "task": ""}
    around = [_nodes(), _nodes(root), _nodes()]  # the entrypoint, the root's driver, the root
    arguments = [*graph.components.values(), *graph.executors.values(), *pods.values(), spec["root"]]
    tasks = [task for dag in _dags(spec) for task in dag["tasks"].values()]
    nodes = [*around, *_dag_nodes(spec["root"], graph)]
    fixed = TEMPLATES_BYTES + TASK_BYTES * len(tasks)
    return fixed + sum(map(_quoted_length, [*arguments, *tasks])) + sum(nodes)


def size_note(compiled: str) -> str:
    """A sentence about a graph whose finished workflow is too long to be shown; "" for any other."""
    import yaml

    spec, platform = yaml.load_all(compiled, Loader=yaml.CSafeLoader)
    if (size := workflow_bytes(spec, platform)) <= ARGO_LIMIT:
        return ""
    return (
        f"the finished workflow has about {size:,} bytes, and KFP's list of tasks stops at {ARGO_LIMIT:,}. The run "
        "itself goes on. Each setting is in it twelve times: shorten the profile's own system prompts."
    )


def _dags(spec: Mapping[str, Any]) -> list[Any]:
    return [part["dag"] for part in (spec["root"], *spec["components"].values()) if "dag" in part]


def _dag_nodes(component: Mapping[str, Any], graph: Graph) -> Iterator[int]:
    """Bytes of the nodes of each task, and of the tasks in it."""
    for name, task in component["dag"]["tasks"].items():
        called = graph.components[task["componentRef"]["name"]]
        inputs = {"component": called, "task": task}
        if "dag" in called:
            yield _nodes(inputs)
            yield _nodes()
            yield from _dag_nodes(called, graph)
            continue
        executor = graph.executors[called["executorLabel"]]
        if "importer" in executor:
            yield _nodes(inputs, executor)
            continue
        pod = graph.pods.get(called["executorLabel"], {})
        outputs = called.get("outputDefinitions", {})
        logged = {**called, "outputDefinitions": {**outputs, "artifacts": {**outputs.get("artifacts", {}), **LOGS}}}
        inside = _executor_input(name, task, logged, graph.metadata)
        patch = _pod_patch(logged, executor["container"], pod, inside)
        labels = pod.get("podMetadata", {})  # each key and each value is a parameter of both templates
        yield _nodes(inputs, executor, pod, patch)
        yield _nodes(patch, labels, labels)
        yield _nodes(patch, labels, labels)


def _nodes(*contents: Any) -> int:
    """Bytes of a template's nodes, each with these contents as quoted text."""
    return NODES_OF_A_TEMPLATE * (NODE_BYTES + sum(map(_quoted_length, contents)))


def _pod_patch(
    component: Mapping[str, Any], container: Mapping[str, Any], pod: Mapping[str, Any], inside: Mapping[str, Any]
) -> dict[str, Any]:
    """The patch that a step's driver writes: the launcher's command with all inputs, and the step's own command."""
    services = "0" * 400  # addresses of KFP's services, ids of run and execution
    launcher = [
        "/kfp-launcher/launch",
        "--executor_input",
        _json(inside),
        "--component_spec",
        _json(component),
        services,
    ]
    main = {"name": "main", "command": launcher, "args": [*container.get("command", ()), *container.get("args", ())]}
    settings = {name: value for name, value in pod.items() if name != "podMetadata"}
    return {"containers": [{**main, "image": container["image"], "env": container.get("env", [])}], "pod": settings}


def _executor_input(
    name: str, task: Mapping[str, Any], component: Mapping[str, Any], metadata: Mapping[str, Any]
) -> dict[str, Any]:
    inputs, outputs = component.get("inputDefinitions", {}), component.get("outputDefinitions", {})
    noted = {**metadata, "store_session_info": SESSION}
    return {
        "inputs": {
            "artifacts": {
                key: _artifact(key, name, spec, {**noted, "display_name": key})
                for key, spec in inputs.get("artifacts", {}).items()
            },
            "parameterValues": task.get("inputs", {}).get("parameters", {}),
        },
        "outputs": {
            "artifacts": {key: _artifact(key, name, spec, {}) for key, spec in outputs.get("artifacts", {}).items()},
            "outputFile": f"/{ADDRESS}{name}/output_metadata.json",
            "parameters": {key: {"outputFile": f"/tmp/kfp/outputs/{key}"} for key in outputs.get("parameters", {})},
        },
    }


def _artifact(key: str, step: str, spec: Mapping[str, Any], metadata: Mapping[str, Any]) -> dict[str, Any]:
    artifact = {"name": key, "type": spec["artifactType"], "uri": f"{ADDRESS}{step}/{key}", "metadata": metadata}
    return {"artifacts": [artifact]}


def _quoted_length(content: Any) -> int:
    """Bytes of a content that stands as text in another JSON document."""
    return len(_json(_json(content)).encode())


def _json(content: Any) -> str:
    """JSON as Go writes it, which escapes what HTML would read."""
    text = json.dumps(content, ensure_ascii=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
