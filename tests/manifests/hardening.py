"""Faults of a pod's security, read from its template: scanners skip kinds that they do not know."""

from collections.abc import Iterator
from typing import Any

from tests.manifests.manifest_objects import Pod

HOST = ("hostNetwork", "hostPID", "hostIPC")


def faults(pod: Pod) -> list[str]:
    """One line for each, with the container's name; none for a pod that is as it should be."""
    result = [f"{name} is on" for name in HOST if pod.spec.get(name)]
    result += [
        f"volume {item['name']} is a folder of the node"
        for item in pod.spec.get("volumes") or ()
        if "hostPath" in item
    ]
    both = [*(pod.spec.get("initContainers") or ()), *(pod.spec.get("containers") or ())]
    result += [f"{item['name']}: {fault}" for item in both for fault in _container(item, pod.spec)]
    if pod.serves:
        result += [f"{item['name']}: {fault}" for item in pod.spec.get("containers") or () for fault in _probes(item)]
    return result


def _container(item: dict[str, Any], spec: dict[str, Any]) -> Iterator[str]:
    local, shared = item.get("securityContext") or {}, spec.get("securityContext") or {}
    if local.get("privileged"):
        yield "is privileged"
    if local.get("allowPrivilegeEscalation") is not False:
        yield "may escalate its privileges"
    capabilities = local.get("capabilities") or {}
    if capabilities.get("drop") != ["ALL"] or capabilities.get("add"):
        yield "keeps capabilities"
    if local.get("runAsNonRoot", shared.get("runAsNonRoot")) is not True:
        yield "may run as root"
    if not local.get("runAsUser", shared.get("runAsUser")):
        yield "has no user of its own: the image's may be root, or a name that the kubelet cannot judge"
    if (local.get("seccompProfile") or shared.get("seccompProfile") or {}).get("type") not in (
        "RuntimeDefault",
        "Localhost",
    ):
        yield "has no seccomp profile"
    if any("hostPort" in port for port in item.get("ports") or ()):
        yield "takes a port of the node"
    resources = item.get("resources") or {}
    for name in ("requests", "limits"):
        if missing := {"cpu", "memory"} - set(resources.get(name) or {}):
            yield f"{name} no {' and '.join(sorted(missing))}"


def _probes(item: dict[str, Any]) -> Iterator[str]:
    for name in ("startupProbe", "readinessProbe", "livenessProbe"):
        if name not in item:
            yield f"has no {name}"
    if (item.get("securityContext") or {}).get("readOnlyRootFilesystem") is not True:
        yield "may write to its root"
