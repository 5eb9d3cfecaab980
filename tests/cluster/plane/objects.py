"""Objects that the API server gets first: upstream's own files, in their namespaces."""

import base64
import json
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import httpx
import yaml

from qinglan.errors import QinglanError
from tests.cluster.build.binaries import binary
from tests.cluster.plane.processes import Folder
from tests.screens.graph_yaml import LOADER

BUNDLED = Path(__file__).parent / "manifests"
CLUSTER_WIDE = ("ClusterRole", "ClusterRoleBinding", "CustomResourceDefinition", "Namespace")

Object = dict[str, Any]


def kubectl(folder: Folder, *arguments: str, stdin: str | None = None) -> str:
    command = [str(binary("kubectl")), f"--kubeconfig={folder.kubeconfig}", *arguments]
    done = subprocess.run(command, input=stdin, text=True, capture_output=True, env={"HOME": str(folder.root)})
    if done.returncode != 0:
        raise QinglanError(f"kubectl {' '.join(arguments)}: {done.stderr.strip()}")
    return done.stdout


def apply(folder: Folder, objects: Iterable[Object], *arguments: str) -> None:
    stdin = "\n---\n".join(json.dumps(it) for it in objects)
    kubectl(folder, "apply", "--server-side", "--force-conflicts", *arguments, "-f", "-", stdin=stdin)


def load(files: Iterable[Path]) -> list[Object]:
    return [it for file in files for it in yaml.load_all(file.read_text(), Loader=LOADER) if it]


def bundled(*names: str) -> list[Object]:
    return load(BUNDLED / f"{name}.yaml" for name in names)


def in_namespace(objects: list[Object], namespace: str) -> list[Object]:
    """Set the namespace as kustomize's `namespace:` does, for the few kinds that are here."""
    for it in objects:
        if it["kind"] not in CLUSTER_WIDE:
            it["metadata"]["namespace"] = namespace
        for subject in it.get("subjects", ()):
            if subject["kind"] == "ServiceAccount":
                subject["namespace"] = namespace
    return objects


def served_here(objects: list[Object], port: int, authority: Path, only: str = "") -> list[Object]:
    """Webhooks of a process on this machine instead of a Service in the cluster."""
    bundle = base64.b64encode(authority.read_bytes()).decode()
    for it in objects:
        it["metadata"].pop("creationTimestamp", None)
        it["webhooks"] = [hook for hook in it["webhooks"] if only in hook["name"]]
        for hook in it["webhooks"]:
            path = hook["clientConfig"]["service"]["path"]
            hook["clientConfig"] = {"url": f"https://127.0.0.1:{port}{path}", "caBundle": bundle}
    return objects


def served(kinds: list[Object]) -> set[tuple[str, str]]:
    """Paths under which the API server serves these kinds."""
    return {
        (f"/apis/{kind['spec']['group']}/{version['name']}", kind["spec"]["names"]["plural"])
        for kind in kinds
        for version in kind["spec"]["versions"]
        if version["served"]
    }


def all_served(api: httpx.Client, server: str, expected: set[tuple[str, str]]) -> bool:
    """Tell if clients can find every kind: discovery is later than the creation of a kind."""
    for path in {path for path, _ in expected}:
        answer = api.get(server + path)
        names = {it["name"] for it in answer.json()["resources"]} if answer.is_success else set()
        if not {name for at, name in expected if at == path} <= names:
            return False
    return True


def nodes_ready(api: httpx.Client, server: str) -> bool:
    nodes = api.get(f"{server}/api/v1/nodes").raise_for_status().json()["items"]
    return bool(nodes) and all(condition(node, "Ready") for node in nodes)


def condition(it: Object, name: str) -> bool:
    conditions = it.get("status", {}).get("conditions") or []
    return any(each["type"] == name and each["status"] == "True" for each in conditions)


WRONG: Object = {
    "apiVersion": "serving.kserve.io/v1beta1",
    "kind": "InferenceService",
    "metadata": {"name": "wrong", "namespace": "default"},
    "spec": {
        "predictor": {
            "minReplicas": 9, "maxReplicas": 3,
            "model": {"modelFormat": {"name": "pytorch"}, "storageUri": "s3://models/m/1"},
        }
    },
}  # fmt: skip


def refuses(folder: Folder) -> bool:
    """Tell if KServe's webhook is called: before that a wrong InferenceService is admitted."""
    try:
        apply(folder, [WRONG], "--dry-run=server")
    except QinglanError as error:
        return "inferenceservice.kserve-webhook-server.validator" in str(error)
    return False
