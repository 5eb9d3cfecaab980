"""Pods as KFP and Argo make them, from a real back end's run, and what the API server makes of them."""

from copy import deepcopy
from pathlib import Path

import yaml

from tests.cluster.kubectl import Kubectl
from tests.manifests.manifest_objects import Object

RECORDED = Path(__file__).with_name("kfp_pods.yaml")
WORKFLOW: Object = {
    "apiVersion": "argoproj.io/v1alpha1", "kind": "Workflow", "name": "rewriter-x", "uid": "1", "controller": True,
}  # fmt: skip
DIGEST = "@sha256:" + "0" * 64


def recorded_pods(namespace: str) -> list[Object]:
    """A driver, an importer and a launcher, in this namespace, their images named by digest as a release has them."""
    pods = [document for document in yaml.safe_load_all(RECORDED.read_text()) if document]
    for pod in pods:
        pod["metadata"] |= {"namespace": namespace, "ownerReferences": [WORKFLOW]}
        for container in containers(pod):
            container["image"] = container["image"].partition(":")[0] + DIGEST
    return pods


def containers(pod: Object) -> list[Object]:
    return [*pod["spec"].get("initContainers", ()), *pod["spec"]["containers"]]


def admitted(kubectl: Kubectl, pod: Object, account: str = "") -> Object:
    """The pod as the API server would store it, with all that admission adds; nothing is made."""
    answer = kubectl.server.create(deepcopy(pod), account, dryRun="All")
    assert answer.refusal == ""
    return answer.body


def without_token(pod: Object) -> list[str]:
    """The containers of an admitted pod that find no token of their account."""
    tokens = {volume["name"] for volume in pod["spec"]["volumes"] if volume["name"].startswith("kube-api-access-")}
    return [
        container["name"]
        for container in containers(pod)
        if tokens.isdisjoint(mount["name"] for mount in container.get("volumeMounts", ()))
    ]
