"""Compares the environment of a job's pods with the one that tests/qinglan/jobs gives to real processes."""

import os
from typing import Any

import orjson

from tests.cluster.plane.cluster import Cluster
from tests.cluster.waiting import until
from tests.qinglan.jobs.rendered_env import RENDERED, SHAPES, shape_name

JOBS = {"group": "kubeflow.org", "version": "v1", "plural": "pytorchjobs"}
WRITE = "QINGLAN_WRITE_RENDERED"
"""Set it to write the file anew, after a look at what has changed."""


def test_the_environments_that_other_tests_use_are_those_of_the_real_operator(
    cluster: Cluster, namespace: str
) -> None:
    api = cluster.admin()

    result = {shape_name(*shape): rendered(api, namespace, *shape) for shape in SHAPES}

    if os.environ.get(WRITE):
        RENDERED.write_bytes(orjson.dumps(result, option=orjson.OPT_INDENT_2) + b"\n")
    assert result == orjson.loads(RENDERED.read_bytes()), (
        f"the operator renders otherwise; see it, then set {WRITE}=1"
    )


def rendered(api: Any, namespace: str, nodes: int, per_node: int) -> list[dict[str, str]]:
    """By node's rank: what the operator put into the container's environment."""
    from kubernetes import client

    name = f"sft-{shape_name(nodes, per_node)}"
    client.CustomObjectsApi(api).create_namespaced_custom_object(
        JOBS["group"], JOBS["version"], namespace, JOBS["plural"], job(name, nodes, per_node)
    )
    core, selector = client.CoreV1Api(api), f"training.kubeflow.org/job-name={name}"

    def pods() -> list[Any]:
        return list(core.list_namespaced_pod(namespace, label_selector=selector).items)

    until(lambda: len(pods()) == nodes, f"{nodes} pods of {name}")
    result = [{variable.name: variable.value for variable in pod.spec.containers[0].env} for pod in pods()]
    return sorted(result, key=lambda environment: int(environment["RANK"]))


def job(name: str, nodes: int, per_node: int) -> dict[str, Any]:
    container = {"name": "pytorch", "image": "qinglan/sft:0.1.0", "command": ["true"]}
    template = {"metadata": {"annotations": {"sim/state": "hold"}}, "spec": {"containers": [container]}}
    replica = {"restartPolicy": "Never", "template": template}
    workers = {"Worker": {"replicas": nodes - 1, **replica}} if nodes > 1 else {}
    return {
        "apiVersion": f"{JOBS['group']}/{JOBS['version']}",
        "kind": "PyTorchJob",
        "metadata": {"name": name},
        "spec": {
            "nprocPerNode": str(per_node),
            "pytorchReplicaSpecs": {"Master": {"replicas": 1, **replica}, **workers},
        },
    }
