"""The judge of pods sees each thing that is wrong."""

from typing import Any

from tests.manifests.hardening import faults
from tests.manifests.manifest_objects import Pod


def test_each_weakness_of_a_pod_is_named_and_a_good_container_has_none() -> None:
    good = {
        "allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]},
        "runAsNonRoot": True, "runAsUser": 65532, "seccompProfile": {"type": "RuntimeDefault"},
    }  # fmt: skip
    limits = {"cpu": 1, "memory": 1}
    probes: dict[str, Any] = {name: {} for name in ("startupProbe", "readinessProbe", "livenessProbe")}
    bad = {
        "privileged": True, "capabilities": {"drop": ["ALL"], "add": ["NET_ADMIN"]}, "runAsUser": 0,
        "seccompProfile": {"type": "Unconfined"},
    }  # fmt: skip
    spec = {
        "hostNetwork": True,
        "volumes": [{"name": "root", "hostPath": {"path": "/"}}],
        "initContainers": [{"name": "first", "securityContext": {**good, "runAsNonRoot": False},
                            "resources": {"requests": limits, "limits": {"memory": 1}}}],
        "containers": [
            {"name": "good", "securityContext": good, "resources": {"requests": limits, "limits": limits}, **probes},
            {"name": "bad", "securityContext": bad, "ports": [{"containerPort": 80, "hostPort": 80}]},
        ],
    }  # fmt: skip

    assert faults(Pod("Deployment/one", "Deployment", {}, spec)) == [
        "hostNetwork is on",
        "volume root is a folder of the node",
        "first: may run as root",
        "first: limits no cpu",
        "bad: is privileged",
        "bad: may escalate its privileges",
        "bad: keeps capabilities",
        "bad: may run as root",
        "bad: has no user of its own: the image's may be root, or a name that the kubelet cannot judge",
        "bad: has no seccomp profile",
        "bad: takes a port of the node",
        "bad: requests no cpu and memory",
        "bad: limits no cpu and memory",
        "bad: has no startupProbe",
        "bad: has no readinessProbe",
        "bad: has no livenessProbe",
        "bad: may write to its root",
    ]
