"""A container of a pod as a process: its command, environment, files and mounts, from the pod's own text.

Pure functions; whatever an API server must be asked for comes through `Lookup`.
"""

import base64
import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, Protocol

Object = dict[str, Any]

REFERENCE = re.compile(r"\$\$|\$\(([-._a-zA-Z][-._a-zA-Z0-9]*)\)")
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
EXECUTORS = frozenset({"init", "wait"})
"""Argo's own containers; any other runs a step."""


class Lookup(Protocol):
    """The API server's answers."""

    def data(self, kind: str, name: str) -> Mapping[str, bytes] | None:
        """Content of a Secret or ConfigMap of the pod's namespace, or None where there is none."""

    def token(self, audience: str, seconds: int) -> bytes:
        """A token of the pod's account, bound to the pod."""


class MissingReference(Exception):
    """A Secret, a ConfigMap or a key that the pod needs is not there yet; the kubelet waits for it."""


class Mount(NamedTuple):
    volume: str
    sub_path: str
    target: str


def expand(text: str, variables: Mapping[str, str]) -> str:
    """Replace $(NAME) by its value as Kubernetes does: an unknown name stays, and $$ is a dollar."""

    def value(match: re.Match[str]) -> str:
        if match[0] == "$$":
            return "$"
        return variables.get(match[1], match[0])

    return REFERENCE.sub(value, text)


def command_line(container: Object, environment: Mapping[str, str]) -> list[str]:
    words = [*(container.get("command") or ()), *(container.get("args") or ())]
    return [expand(word, environment) for word in words]


def environment(pod: Object, container: Object, lookup: Lookup, start: Mapping[str, str]) -> dict[str, str]:
    """The variables of a container, in Kubernetes' order: `start`, then envFrom, then env."""
    variables = dict(start)
    for source in container.get("envFrom") or ():
        kind, reference = ("configMap", "configMapRef") if "configMapRef" in source else ("secret", "secretRef")
        content = _content(lookup, kind, source[reference]) or {}
        variables |= {source.get("prefix", "") + name: value.decode() for name, value in content.items()}
    for entry in container.get("env") or ():
        value = _value(pod, entry, lookup, variables)
        if value is not None:
            variables[entry["name"]] = value
    return variables


def _value(pod: Object, entry: Object, lookup: Lookup, variables: Mapping[str, str]) -> str | None:
    source = entry.get("valueFrom")
    if source is None:
        return expand(entry.get("value") or "", variables)
    if "fieldRef" in source:
        return field(pod, source["fieldRef"]["fieldPath"])
    kind = "secret" if "secretKeyRef" in source else "configMap"
    reference = source[f"{kind}KeyRef"]
    content = _content(lookup, kind, reference) or {}
    if reference["key"] in content:
        return content[reference["key"]].decode()
    if reference.get("optional"):
        return None
    raise MissingReference(f"couldn't find key {reference['key']} in {kind} {reference['name']}")


def _content(lookup: Lookup, kind: str, reference: Object) -> Mapping[str, bytes] | None:
    content = lookup.data(kind, reference["name"])
    if content is None and not reference.get("optional"):
        raise MissingReference(f"{kind} {reference['name']!r} not found")
    return content


def field(pod: Object, path: str) -> str:
    """A field that the downward API names."""
    if match := re.fullmatch(r"metadata\.(annotations|labels)\['(.+)'\]", path):
        return str((pod["metadata"].get(match[1]) or {}).get(match[2], ""))
    if path in ("status.podIP", "status.hostIP"):
        return "127.0.0.1"
    value: Any = pod
    for name in path.split("."):
        value = value.get(name, "")
    return str(value)


def volume_files(pod: Object, volume: Object, lookup: Lookup) -> dict[str, bytes] | None:
    """The files of a volume that Kubernetes fills, by relative path; None for a folder that starts empty."""
    for kind, name in (("secret", "secretName"), ("configMap", "name")):
        if kind in volume:
            source = volume[kind]
            return _chosen(_content(lookup, kind, {**source, "name": source[name]}), source.get("items"))
    if "downwardAPI" in volume:
        return _downward(pod, volume["downwardAPI"].get("items") or ())
    if "projected" not in volume:
        return None
    files: dict[str, bytes] = {}
    for source in volume["projected"]["sources"]:
        if "serviceAccountToken" in source:
            wish = source["serviceAccountToken"]
            files[wish["path"]] = lookup.token(wish.get("audience", ""), wish.get("expirationSeconds", 3600))
        elif "downwardAPI" in source:
            files |= _downward(pod, source["downwardAPI"].get("items") or ())
        else:
            [(kind, reference)] = source.items()
            files |= _chosen(_content(lookup, kind, reference), reference.get("items"))
    return files


def _chosen(content: Mapping[str, bytes] | None, items: Iterable[Object] | None) -> dict[str, bytes]:
    if not items:
        return dict(content or {})
    return {item["path"]: content[item["key"]] for item in items if content and item["key"] in content}


def _downward(pod: Object, items: Iterable[Object]) -> dict[str, bytes]:
    return {item["path"]: field(pod, item["fieldRef"]["fieldPath"]).encode() for item in items if "fieldRef" in item}


def mounts(container: Object) -> list[Mount]:
    """The container's mounts, outer folders before inner ones. /var/run is a link to /run."""
    each = [
        Mount(it["name"], it.get("subPath", ""), it["mountPath"].replace("/var/run/", "/run/", 1))
        for it in container.get("volumeMounts") or ()
    ]
    return sorted(each, key=lambda mount: mount.target.count("/"))


def service_hosts(services: Iterable[Object], namespace: str, host: str) -> str:
    """/etc/hosts of a pod: every Service of the cluster by all of its names, on this machine."""
    lines = ["127.0.0.1 localhost", f"127.0.0.1 {host}"]
    for service in services:
        name, owner = service["metadata"]["name"], service["metadata"]["namespace"]
        names = [f"{name}.{owner}{end}" for end in ("", ".svc", ".svc.cluster.local")]
        lines.append(" ".join(["127.0.0.1", *([name] if owner == namespace else []), *names]))
    return "\n".join(lines) + "\n"


def decoded(kind: str, data: Mapping[str, str] | None) -> dict[str, bytes]:
    """The content of a Secret or ConfigMap as the API server sends it."""
    read = base64.b64decode if kind == "secret" else str.encode
    return {name: read(value) for name, value in (data or {}).items()}
