"""Our runtimes and the states of a rollout, under KServe's real webhooks and controllers, and Knative's."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from qinglan.kubernetes.client import Api
from serving.rollout.shadow.pair_source import RolloutPairSource
from tests.cluster.kubectl import Kubectl
from tests.cluster.overlays import Overlays
from tests.cluster.rollout.test_modelrollout import rollout as modelrollout
from tests.cluster.waiting import until
from tests.manifests.manifest_objects import MANIFESTS, Object

NS = "qinglan"
ROLLOUT = f"{NS}/qinglan-rollout"
OLD, NEW = "1" * 64, "2" * 64


@pytest.fixture(scope="module")
def house(overlays: Overlays) -> Kubectl:
    return overlays.use("a100")


@pytest.fixture
def rollout(house: Kubectl) -> Iterator[Kubectl]:
    """Nothing is served before, nor after."""
    yield house
    house.delete_all("isvc", NS)
    until(lambda: not served(house), "the last model's pods are gone")


def state(name: str) -> Object:
    (manifest,) = list(yaml.safe_load_all((MANIFESTS / f"rollout/{name}.yaml").read_text()))
    manifest["metadata"]["namespace"] = NS
    return dict(manifest)


def put(kubectl: Kubectl, name: str) -> Object:
    """As the rollout's controller would, by a whole replacement: a field that is left out is cleared."""
    manifest = state(name)
    if kubectl.exists("isvc", manifest["metadata"]["name"], NS):
        assert replaced(kubectl, manifest) == ""
    else:
        assert kubectl.server.create(manifest, ROLLOUT).refusal == ""
    return manifest


def replaced(kubectl: Kubectl, manifest: Object) -> str:
    """Why it was refused; KServe may write to it at the same time, then once more."""
    server, name = kubectl.server, manifest["metadata"]["name"]
    while True:
        version = kubectl.get("isvc", name, NS)["metadata"]["resourceVersion"]
        whole = {**manifest, "metadata": {**manifest["metadata"], "resourceVersion": version}}
        refusal = server.request("PUT", server.resource("isvc").path(NS, name), whole, ROLLOUT).refusal
        if "the object has been modified" not in refusal:
            return refusal


def served(kubectl: Kubectl) -> list[Object]:
    return [
        item
        for item in kubectl.all("pods", NS, "serving.kserve.io/inferenceservice")
        if "deletionTimestamp" not in item["metadata"] and is_ready(item)
    ]


def is_ready(manifest: Object) -> bool:
    conditions = manifest.get("status", {}).get("conditions") or ()
    return any(it["type"] == "Ready" and it["status"] == "True" for it in conditions)


def releases(kubectl: Kubectl) -> list[str]:
    """The digest that each ready pod was started with, as its storage initialiser is told."""
    uris = [manifest["spec"]["initContainers"][0]["args"][0] for manifest in served(kubectl)]
    return sorted(uri.partition("/releases/")[2].partition("/")[0] for uri in uris)


def ready(kubectl: Kubectl, name: str) -> bool:
    return is_ready(kubectl.get("isvc", name, NS))


@pytest.mark.parametrize("name", ["standard/stable", "rewriter-cpu", "style"])
def test_a_model_becomes_ready_in_a_restricted_namespace(rollout: Kubectl, name: str) -> None:
    manifest = put(rollout, name)
    model = manifest["metadata"]["name"]

    until(lambda: ready(rollout, model), f"{model} ready")
    deployment = rollout.get("deployment", f"{model}-predictor", NS)

    assert deployment["spec"]["replicas"] == manifest["spec"]["predictor"]["minReplicas"]
    assert rollout.all("pods", NS, f"serving.kserve.io/inferenceservice={model}")


def test_the_storage_initialiser_gets_the_stores_key_and_address(rollout: Kubectl) -> None:
    put(rollout, "style")
    until(lambda: served(rollout), "a pod of the style model")
    (first,) = served(rollout)[0]["spec"]["initContainers"]
    env = {variable["name"]: variable for variable in first["env"]}

    assert first["args"][1] == "/mnt/models"
    for key in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        assert env[key]["valueFrom"]["secretKeyRef"] == {"name": "qinglan-store", "key": key}
    assert env["AWS_ENDPOINT_URL"]["value"] == "http://minio.minio.svc:9000"
    assert env["AWS_DEFAULT_REGION"]["value"] == "us-east-1"
    assert first["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert first["resources"]["limits"] == {"cpu": "4", "memory": "4Gi"}


def test_the_runtime_is_filled_in_for_the_service(rollout: Kubectl) -> None:
    put(rollout, "standard/stable")
    until(lambda: len(served(rollout)) == 2, "two pods of the rewriter")
    spec = served(rollout)[0]["spec"]
    container = next(container for container in spec["containers"] if container["name"] == "kserve-container")

    assert container["command"] == ["vllm", "serve", "/mnt/base"]
    assert "--lora-modules=rewriter=/mnt/models/model/adapter" in container["args"]
    assert container["resources"]["limits"]["nvidia.com/gpu"] == "2"
    assert container["lifecycle"]["preStop"]["exec"]["command"] == ["sleep", "5"]
    assert container["securityContext"]["readOnlyRootFilesystem"] is True
    assert spec["nodeSelector"]["nvidia.com/gpu.product"] == "NVIDIA-A100-SXM4-80GB"
    assert {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"} in spec["tolerations"]
    assert spec["priorityClassName"] == "qinglan-online"
    assert spec["serviceAccountName"] == "qinglan-serving"
    mounts = {volume_mount["mountPath"]: volume_mount for volume_mount in container["volumeMounts"]}
    assert {"/mnt/base", "/mnt/models", "/dev/shm", "/tmp"} <= set(mounts)


def test_kserves_pods_and_services_carry_the_labels_of_monitors_and_policies(rollout: Kubectl) -> None:
    put(rollout, "style")
    until(lambda: served(rollout), "a pod of the style model")
    service = rollout.get("service", "style-predictor", NS)

    assert service["metadata"]["labels"]["serving.kserve.io/inferenceservice"] == "style"
    assert [(port["port"], port["targetPort"]) for port in service["spec"]["ports"]] == [(80, 8080)]
    assert served(rollout)[0]["metadata"]["labels"]["serving.kserve.io/inferenceservice"] == "style"


def test_a_rollout_in_standard_mode_keeps_the_service_that_is_asked(rollout: Kubectl) -> None:
    promised = {
        "stable": [OLD, OLD], "canary": [OLD, NEW], "promoted": [NEW, NEW], "rolled-back": [OLD, OLD],
    }  # fmt: skip
    for name, expected in promised.items():
        put(rollout, f"standard/{name}")
        until(lambda expected=expected: releases(rollout) == expected, f"{name}: {expected}")  # type: ignore[misc]
        assert rollout.exists("service", "rewriter-predictor", NS), name


def test_a_rollout_in_knative_mode_moves_the_traffic(rollout: Kubectl) -> None:
    for name, expected in {
        "stable": {OLD: 100}, "canary": {NEW: 10, OLD: 90}, "promoted": {NEW: 100}, "rolled-back": {OLD: 100},
    }.items():  # fmt: skip
        put(rollout, f"knative/{name}")
        until(lambda expected=expected: shares(rollout) == expected, f"{name}: {expected}")  # type: ignore[misc]


def test_the_shadow_finds_a_canary_without_users_by_its_own_route(rollout: Kubectl, cluster: Any) -> None:
    """As the rollout's account, which may read what the shadow reads."""
    canary = state("knative/canary")
    canary["spec"]["predictor"]["canaryTrafficPercent"] = 0
    put(rollout, "knative/stable")
    until(lambda: shares(rollout) == {OLD: 100}, "the stable model has all of the traffic")
    manifest = modelrollout(NS)
    stable = {"uri": "s3://q/old", "digest": OLD, "model": "4" * 64}
    status = {"status": {"phase": "Analyse", "stable": stable}}
    rollout.must("create", "-f", "-", manifests=[manifest])
    rollout.must("patch", "modelrollout", "rewriter-1", "-n", NS, "--subresource=status", "--type=merge",
                 f"-p={json.dumps(status)}", account=ROLLOUT)  # fmt: skip
    try:
        assert replaced(rollout, canary) == ""
        until(lambda: shares(rollout) == {NEW: 0, OLD: 100}, "a canary without users")
        whom = RolloutPairSource("rewriter", NS, Api(cluster.account(NS, "qinglan-rollout"), NS)).current_pair()
    finally:
        rollout.must("delete", "modelrollout", "rewriter-1", "-n", NS)

    assert whom is not None and (whom.canary, whom.stable) == ("3" * 12, "4" * 12)
    assert whom.url.startswith("http://latest-rewriter-predictor")


def shares(kubectl: Kubectl) -> dict[str, int]:
    """Per cent by release, from the status of the service and what each revision runs."""
    status = kubectl.get("isvc", "rewriter", NS).get("status", {})
    traffic = status.get("components", {}).get("predictor", {}).get("traffic") or ()
    if not is_ready({"status": status}):
        return {}
    result: dict[str, int] = {}
    for target in traffic:
        revision = kubectl.get("revision", target["revisionName"], NS)
        uri = revision["metadata"]["annotations"]["internal.serving.kserve.io/storage-initializer-sourceuri"]
        result[uri.partition("/releases/")[2]] = target["percent"]
    return result


def test_pods_of_two_node_jobs_need_the_init_container_that_we_ship(house: Kubectl) -> None:
    """As training-operator makes it, Pod Security refuses it; the one of manifests/training-operator passes."""
    text = (MANIFESTS / "training-operator/initContainer.yaml").read_text()
    for name, value in {"InitContainerImage": "alpine:3.10", "MaxTries": "100", "MasterAddr": "one-master-0"}.items():
        text = text.replace("{{." + name + "}}", value)
    shipped = yaml.safe_load(text)
    stock = [{name: value for name, value in shipped[0].items() if name != "securityContext"}]
    security = {"runAsNonRoot": True, "runAsUser": 65532, "seccompProfile": {"type": "RuntimeDefault"}}
    main = {"name": "pytorch", "image": "one", "securityContext": shipped[0]["securityContext"]}

    def answer(init: Any) -> str:
        pod = {
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "one", "namespace": NS},
            "spec": {"securityContext": security, "initContainers": init, "containers": [main]},
        }  # fmt: skip
        return house.try_to_create(pod)

    assert 'container "init-pytorch" must set' in answer(stock)
    assert answer(shipped) == ""
