"""The judge of pods sees each thing that is wrong, in every kind of object that brings pods."""

import copy
from typing import Any

import pytest

from tests.manifests.hardening import faults
from tests.manifests.manifest_objects import Pod

GOOD: dict[str, Any] = {
    "securityContext": {"runAsNonRoot": True, "runAsUser": 65532, "seccompProfile": {"type": "RuntimeDefault"}},
    "containers": [
        {
            "name": "one",
            "image": "one",
            "securityContext": {
                "allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]},
            },
            "resources": {"requests": {"cpu": 1, "memory": 1}, "limits": {"cpu": 1, "memory": 1}},
            "startupProbe": {}, "readinessProbe": {}, "livenessProbe": {},
        }
    ],
}  # fmt: skip

MISSING = object()
WRONG: dict[str, tuple[tuple[str | int, ...], Any]] = {
    "is privileged": (("containers", 0, "securityContext", "privileged"), True),
    "may escalate its privileges": (("containers", 0, "securityContext", "allowPrivilegeEscalation"), None),
    "keeps capabilities": (("containers", 0, "securityContext", "capabilities", "add"), ["NET_ADMIN"]),
    "may run as root": (("securityContext", "runAsNonRoot"), False),
    "has no user of its own": (("securityContext", "runAsUser"), 0),
    "has no seccomp profile": (("securityContext", "seccompProfile"), {"type": "Unconfined"}),
    "hostNetwork is on": (("hostNetwork",), True),
    "is a folder of the node": (("volumes",), [{"name": "root", "hostPath": {"path": "/"}}]),
    "takes a port of the node": (("containers", 0, "ports"), [{"containerPort": 80, "hostPort": 80}]),
    "limits no cpu": (("containers", 0, "resources", "limits"), {"memory": 1}),
    "requests no cpu and memory": (("containers", 0, "resources", "requests"), {}),
    "may write to its root": (("containers", 0, "securityContext", "readOnlyRootFilesystem"), False),
    "has no readinessProbe": (("containers", 0, "readinessProbe"), MISSING),
    "may run as root ": (("initContainers",), [{"name": "first", "securityContext": {"runAsNonRoot": False}}]),
}


def changed(path: tuple[str | int, ...], value: Any) -> dict[str, Any]:
    spec = copy.deepcopy(GOOD)
    parent: Any = spec
    for step in path[:-1]:
        parent = parent[step]
    parent[path[-1]] = value
    if value is MISSING:
        del parent[path[-1]]
    return spec


def test_a_pod_as_it_should_be_has_no_faults() -> None:
    assert faults(Pod("Deployment/one", "Deployment", {}, GOOD)) == []


@pytest.mark.parametrize("message", WRONG)
def test_each_weakness_is_named(message: str) -> None:
    result = faults(Pod("Deployment/one", "Deployment", {}, changed(*WRONG[message])))

    assert any(message.strip() in fault for fault in result), result
