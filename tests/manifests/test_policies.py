"""The list of what each part of Qinglan may use, in platform/pods-by-part.yaml, against the manifests' own pods.

Whether the API server holds to it: tests/cluster/manifests/test_policy_table.py.
"""

import ast
import re
from collections.abc import Iterator
from typing import Any

import pytest

from pipelines.graph.store_secret import STORE_SECRET
from tests.manifests.manifest_objects import MANIFESTS, Object, Pod, objects, pods, resources

SHARED = ("byPlatform", "inKubeSystem", "byController")
"""Variables of several policies: no policy can use another's."""
POLICIES = [
    item
    for file in sorted((MANIFESTS / "platform").glob("*.yaml"))
    for item in objects(file)
    if item["kind"] == "ValidatingAdmissionPolicy"
]
MODELS, STEPS, TRAININGS = "InferenceService", "Workflow", "PyTorchJob"


def variables(policy: Object) -> dict[str, str]:
    return {item["name"]: item["expression"] for item in policy["spec"].get("variables", ())}


[BY_PART] = [variables(item) for item in POLICIES if item["metadata"]["name"] == "qinglan-pods-by-part"]
GRANTS: dict[str, str] = ast.literal_eval(BY_PART["grants"])
GUARDED = re.compile("".join(re.findall("'([^']*)'", BY_PART["guarded"])))


def part_of(pod: Pod) -> str:
    """The part that makes this pod: a runtime's pods are made of InferenceServices."""
    return MODELS if pod.owner.startswith(("ServingRuntime/", "ClusterStorageContainer/")) else pod.owner


def used(value: Any) -> Iterator[str]:
    """Every guarded thing in a pod's spec, whatever field names it."""
    if isinstance(value, list):
        for item in value:
            yield from used(item)
    elif isinstance(value, dict):
        yield from (f"Secret/{value[key]['name']}" for key in ("secretRef", "secretKeyRef") if key in value)
        names = {"Secret": "secretName", "PersistentVolumeClaim": "claimName", "ServiceAccount": "serviceAccountName"}
        yield from (f"{kind}/{value[key]}" for kind, key in names.items() if key in value)
        for item in value.values():
            yield from used(item)


def granted(part: str) -> re.Pattern[str]:
    local = rf"|(ServiceAccount/|app[.]kubernetes[.]io/name=){part.split('/')[1]}" if "/" in part else ""
    return re.compile(GRANTS[part] + local)


PODS = [pod for _, item in resources() for pod in pods(item)]


@pytest.mark.parametrize("pod", PODS, ids=lambda pod: pod.owner)
def test_each_part_is_granted_what_its_own_pods_use(pod: Pod) -> None:
    things = [thing for thing in used(pod.spec) if GUARDED.fullmatch(thing)]

    assert [thing for thing in things if not granted(part_of(pod)).fullmatch(thing)] == []


def test_every_part_of_the_manifests_is_in_the_list_and_no_other() -> None:
    assert {part_of(pod) for pod in PODS} | {STEPS, TRAININGS} == set(GRANTS)


@pytest.mark.parametrize(
    ("thing", "parts"),
    [
        ("Secret/qinglan-paid-api", {"Deployment/qinglan-gateway"}),
        ("PersistentVolumeClaim/qinglan-journal", {"Deployment/qinglan-gateway"}),
        ("Secret/qinglan-rollout-key", {"Deployment/qinglan-rollout"}),
        ("ServiceAccount/qinglan-rollout", {"Deployment/qinglan-rollout"}),
        ("app.kubernetes.io/name=qinglan-rollout", {"Deployment/qinglan-rollout"}),
        ("ServiceAccount/qinglan-gateway", {"Deployment/qinglan-gateway"}),
        ("app.kubernetes.io/name=qinglan-gateway", {"Deployment/qinglan-gateway"}),
        ("ServiceAccount/qinglan-serving", {MODELS}),
        ("app=isvc.rewriter-predictor", {MODELS}),
        ("ServiceAccount/pipeline-runner", {STEPS}),
        ("Secret/qinglan-release-keys", {STEPS}),
        ("Secret/qinglan-builder-key", {STEPS}),
        ("Secret/qinglan-payloads", {"Deployment/qinglan-shadow", MODELS}),
        (f"Secret/{STORE_SECRET}", {"Deployment/qinglan-rollout", MODELS, STEPS, TRAININGS}),
        ("Secret/qinglan-anything", set()),
    ],
)
def test_whose_each_sensitive_thing_is(thing: str, parts: set[str]) -> None:
    assert GUARDED.fullmatch(thing)
    assert {part for part in GRANTS if granted(part).fullmatch(thing)} == parts


def test_policies_mean_the_same_by_a_platform_and_a_controller() -> None:
    for name in SHARED:
        texts = {
            variables(policy)[name]
            for policy in POLICIES
            if name in variables(policy) and "inKubeSystem" in variables(policy)
        }
        assert len(texts) == 1, name


def test_no_policy_needs_a_function_that_came_with_kubernetes_1_35() -> None:
    assert not [policy["metadata"]["name"] for policy in POLICIES if ".flatten(" in str(policy)]
