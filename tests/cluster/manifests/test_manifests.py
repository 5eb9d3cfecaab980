"""Every overlay, as kubectl renders it: what it promises, and that a real API server takes it."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from serving.rollout.__main__ import parser as controller_options
from serving.rollout.spec import CHECKS, default_checks
from tests.cluster.kubectl import (
    Kubectl,
    Output,
    filled_in,
    kustomized,
    rendered,
    with_images,
)
from tests.cluster.manifests.controller_rights import ARGO, controller_rights
from tests.cluster.manifests.kfp_pods import admitted, recorded_pods, without_token
from tests.cluster.overlays import Overlays
from tests.cluster.waiting import until
from tests.manifests.allowed_connections import reaching_out, wrong_ways
from tests.manifests.manifest_objects import MANIFESTS, OVERLAYS, Object, pods

SHADOWED = ("single-tenant", "a100", "release")
"""They take in the shadow."""

NAMESPACES = {"multi-tenant": {"qinglan-chengla", "qinglan-fivedoctors"}}
BY_HAND = ("qinglan-trust",)
"""An overlay does not decide whose signatures count: manifests/README.md."""


@pytest.fixture(scope="session")
def manifests(tmp_path_factory: pytest.TempPathFactory) -> Path:
    copy = filled_in(tmp_path_factory.mktemp("manifests"))
    with_images(copy)
    return copy


@pytest.fixture(scope="session", params=OVERLAYS)
def overlay(request: pytest.FixtureRequest, manifests: Path) -> tuple[str, list[Object]]:
    return request.param, rendered(manifests / "overlays" / request.param)


def of_kind(manifests: Sequence[Object], *kinds: str) -> list[Object]:
    return [manifest for manifest in manifests if manifest["kind"] in kinds]


def test_every_overlay_is_here() -> None:
    assert {path.parent.name for path in MANIFESTS.glob("overlays/*/kustomization.yaml")} == set(OVERLAYS)


def test_its_namespaces_are_restricted_and_guarded(overlay: tuple[str, list[Object]]) -> None:
    name, manifests = overlay
    spaces = of_kind(manifests, "Namespace")

    assert {space["metadata"]["name"] for space in spaces} == NAMESPACES.get(name, {"qinglan"})
    for space in spaces:
        assert space["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "restricted"
        assert space["metadata"]["labels"]["qinglan.dev/guarded"] == "true"
        assert space["metadata"]["labels"]["qinglan.dev/tenant"]


def test_nothing_is_outside_its_namespaces_but_the_platform(overlay: tuple[str, list[Object]]) -> None:
    name, manifests = overlay
    wide = {manifest["kind"] for manifest in manifests if "namespace" not in manifest["metadata"]}

    assert {
        manifest["metadata"]["namespace"] for manifest in manifests if "namespace" in manifest["metadata"]
    } == NAMESPACES.get(name, {"qinglan"})
    assert wide == {
        "Namespace", "PriorityClass", "ClusterStorageContainer", "CustomResourceDefinition",
        "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding",
    }  # fmt: skip


def test_its_gateway_alone_reaches_the_internet(overlay: tuple[str, list[Object]]) -> None:
    name, manifests = overlay
    policies = of_kind(manifests, "NetworkPolicy")

    for namespace in NAMESPACES.get(name, {"qinglan"}):
        assert wrong_ways(policies, namespace, shadow=name in SHADOWED) == []
        assert reaching_out(policies, namespace) == (set() if name == "laptop-cluster" else {"gateway"})


def test_the_key_of_the_paid_api_is_in_the_gateways_pod_alone(overlay: tuple[str, list[Object]]) -> None:
    holders = {pod.owner for manifest in overlay[1] for pod in pods(manifest) if "qinglan-paid-api" in str(pod.spec)}

    assert holders == {"Deployment/qinglan-gateway"}


def test_the_default_policy_asks_for_no_check_that_has_no_evidence(overlay: tuple[str, list[Object]]) -> None:
    """Traffic's own checks have theirs from every model; `quality` has it from a shadow in the same namespace."""
    name, manifests = overlay

    for namespace in NAMESPACES.get(name, {"qinglan"}):
        here = [
            manifest
            for manifest in of_kind(manifests, "Deployment")
            if manifest["metadata"]["namespace"] == namespace
        ]
        arguments = {
            manifest["metadata"]["name"]: manifest["spec"]["template"]["spec"]["containers"][0]["args"]
            for manifest in here
        }
        services = {arg.partition("=")[2] for arg in arguments.get("qinglan-shadow", ()) if "--service=" in arg}
        controller = controller_options().parse_args(arguments["qinglan-rollout"])
        requested = {check.name for check in default_checks("rewriter" in controller.shadow)}

        assert set(controller.shadow) == services == ({"rewriter"} if name in SHADOWED else set())
        assert requested - {"quality"} == {check.name for check in CHECKS}
        assert ("quality" in requested) is (name in SHADOWED)


def test_the_key_of_what_users_asked_is_with_who_writes_it_and_who_reads_it_alone(
    overlay: tuple[str, list[Object]],
) -> None:
    name, manifests = overlay
    holders = {
        (pod.owner, container["name"])
        for manifest in manifests
        for pod in pods(manifest)
        for container in [*pod.spec.get("containers", ()), *pod.spec.get("initContainers", ())]
        if "qinglan-payloads" in str(container)
    }
    shadow, cpu = ("Deployment/qinglan-shadow", "shadow"), ("ServingRuntime/qinglan-rewriter-cpu", "kserve-container")
    runtimes = ("ServingRuntime/qinglan-rewriter-vllm", "ServingRuntime/qinglan-rewriter-vllm-full")
    vllm = {(runtime, "transformer-container") for runtime in runtimes}

    assert holders == ({shadow, cpu} if name in SHADOWED else set()) | (vllm if name in FIRST else set())
    for owner, container in holders:
        (result,) = [
            candidate for whole in manifests for pod in pods(whole) if pod.owner == owner
            for candidate in pod.spec["containers"] if candidate["name"] == container
        ]  # fmt: skip
        assert result["envFrom"] == [{"secretRef": {"name": "qinglan-payloads"}}]
        assert "$(QINGLAN_PAYLOADS)" in "".join(result["args"]), "where it is comes with the key"


def test_every_claim_and_configuration_that_its_pods_name_is_there(overlay: tuple[str, list[Object]]) -> None:
    manifests = overlay[1]
    existing = {(manifest["kind"], manifest["metadata"]["name"]) for manifest in manifests}
    for pod in (pod for manifest in manifests for pod in pods(manifest)):
        for volume in pod.spec.get("volumes") or ():
            if claim := volume.get("persistentVolumeClaim"):
                assert ("PersistentVolumeClaim", claim["claimName"]) in existing
            if config := volume.get("configMap"):
                assert config["name"] in BY_HAND or ("ConfigMap", config["name"]) in existing
        if priority := pod.spec.get("priorityClassName"):
            assert ("PriorityClass", priority) in existing
        if account := pod.spec.get("serviceAccountName"):
            assert ("ServiceAccount", account) in existing


def test_settings_that_nobody_filled_in_are_refused_and_say_what_to_do(
    overlay: tuple[str, list[Object]], manifests: Path, namespace: str, cluster: Any, tmp_path: Path
) -> None:
    copy = filled_in(tmp_path / "copy")
    for example in copy.rglob("*.env.example"):
        example.with_suffix("").write_text(example.read_text())
    with_images(copy)
    objects = of_kind(rendered(copy / "overlays" / overlay[0]), "Secret")
    blank = [manifest for manifest in objects if not all(manifest["data"].values())]
    for manifest in blank:
        manifest["metadata"]["namespace"] = namespace
        answer = Kubectl(cluster.kubeconfig).apply([manifest], "--dry-run=server")
        assert answer.code != 0 and "Fill in what is blank above, then delete this line" in answer.text, answer.text

    assert {manifest["metadata"]["name"] for manifest in blank} == {"qinglan-store"} | (
        set() if overlay[0] == "laptop-cluster" else {"qinglan-paid-api"}
    ) | ({"qinglan-payloads"} if overlay[0] in SHADOWED else set())  # fmt: skip


FIRST = {"a100": "standard/stable", "release": "standard/stable"}
"""The rewriter that manifests/README.md names for it."""


def test_the_overlay_has_the_runtimes_of_its_first_models(overlay: tuple[str, list[Object]]) -> None:
    runtimes = {
        manifest["metadata"]["name"]: {each["name"] for each in manifest["spec"]["supportedModelFormats"]}
        for manifest in of_kind(overlay[1], "ServingRuntime")
    }
    for name in (FIRST.get(overlay[0], "rewriter-cpu"), "style"):
        model = yaml.safe_load((MANIFESTS / f"rollout/{name}.yaml").read_text())["spec"]["predictor"]["model"]
        assert model["modelFormat"]["name"] in runtimes[model["runtime"]], name


BUILT = ("cpu", "serve", "style")


@pytest.mark.parametrize("missing", BUILT)
def test_a_release_renders_only_with_every_image_by_digest(missing: str, tmp_path: Path) -> None:
    copy = filled_in(tmp_path)
    with_images(copy, [name for name in BUILT if name != missing])
    answer = kustomized(copy / "overlays/release")

    assert answer.code != 0 and f"for value qinglan/{missing}:0.1.0" in answer.text, answer.text


def test_nothing_of_a_release_that_was_never_built_reaches_a_fresh_cluster(
    overlays: Overlays, tmp_path: Path
) -> None:
    """No policy is there yet that would refuse its tags."""
    overlays.clear()
    kubectl = overlays.kubectl
    answer = kubectl("apply", "--server-side", "-k", str(filled_in(tmp_path) / "overlays/release"))

    assert answer.code != 0 and "for value qinglan/cpu:0.1.0" in answer.text, answer.text
    assert policies(kubectl) == []
    assert "NotFound" in kubectl("get", "namespace", "qinglan").text


def test_a_release_says_on_its_namespace_what_runs_there(manifests: Path) -> None:
    objects = rendered(manifests / "overlays/release")
    (space,) = of_kind(objects, "Namespace")
    report = {name.partition("/image-")[2]: digest for name, digest in space["metadata"]["annotations"].items()}
    images = {
        each["image"]
        for manifest in objects
        for pod in pods(manifest)
        for each in (*pod.spec.get("containers", ()), *pod.spec.get("initContainers", ()))
    }

    assert {f"qinglan/{name}@{report[name]}" for name in BUILT} == images


@pytest.mark.parametrize("name", OVERLAYS)
def test_the_overlay_is_applied_and_its_services_run(name: str, overlays: Overlays) -> None:
    kubectl = overlays.use(name)
    manifests = overlays.objects
    expected = {
        (manifest["metadata"]["namespace"], manifest["metadata"]["name"])
        for manifest in of_kind(manifests, "Deployment")
    }

    def ready() -> bool:
        result = kubectl.all("deployments", labels="app.kubernetes.io/part-of=qinglan")
        done = {
            (manifest["metadata"]["namespace"], manifest["metadata"]["name"])
            for manifest in result
            if (manifest.get("status") or {}).get("availableReplicas") == manifest["spec"]["replicas"]
        }
        return expected <= done

    until(ready, f"{sorted(expected)} available")
    until(lambda: all(map(checked, policies(kubectl))), "the types of every policy are checked")
    warned = [
        f"{policy['metadata']['name']}: {warning['warning']}"
        for policy in policies(kubectl)
        for warning in policy["status"]["typeChecking"].get("expressionWarnings", ())
    ]
    assert warned == []
    # What a controller writes between diff's two looks is shown as a difference, and is gone a moment later.
    for _ in range(3):
        again = kubectl("diff", "--server-side", "--force-conflicts", "-f", "-", manifests=manifests)
        if again == Output(0, ""):
            break
    assert again == Output(0, ""), f"what is applied twice is not the same:\n{again.text}"
    steps_start(kubectl, manifests)


def steps_start(kubectl: Kubectl, manifests: list[Object]) -> None:
    """In every tenant's namespace the API server takes KFP's and Argo's own pods, and gives each a token."""
    tenants = [manifest["metadata"]["namespace"] for manifest in manifests if is_runner(manifest)]
    assert tenants
    step_pods = [pod for tenant in tenants for pod in recorded_pods(tenant)]
    with controller_rights(kubectl, ARGO):
        until(lambda: kubectl.try_to_create(step_pods[0], ARGO) == "", "Argo's rights are known")
        for pod in step_pods:
            assert without_token(admitted(kubectl, pod, ARGO)) == []


def is_runner(manifest: Object) -> bool:
    return bool(manifest["kind"] == "ServiceAccount" and manifest["metadata"]["name"] == "pipeline-runner")


def policies(kubectl: Kubectl) -> list[Object]:
    return kubectl.all("validatingadmissionpolicies", labels="app.kubernetes.io/part-of=qinglan")


def checked(policy: Object) -> bool:
    """The controllers have written down what they make of its expressions."""
    return bool(policy["metadata"]["generation"] == policy.get("status", {}).get("observedGeneration"))


def test_the_operators_component_gives_its_init_container_to_the_operator(tmp_path: Path) -> None:
    deployment = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "training-operator", "namespace": "kubeflow"},
        "spec": {"template": {"spec": {"containers": [{"name": "training-operator", "image": "one"}]}}},
    }
    copy = filled_in(tmp_path)
    install = copy / "install"
    install.mkdir()
    (install / "operator.yaml").write_text(yaml.safe_dump(deployment))
    settings = {"resources": ["operator.yaml"], "components": ["../training-operator"]}
    (install / "kustomization.yaml").write_text(yaml.safe_dump(settings))

    manifests = {manifest["kind"]: manifest for manifest in rendered(install)}

    (mount,) = manifests["Deployment"]["spec"]["template"]["spec"]["containers"][0]["volumeMounts"]
    (held,) = manifests["Deployment"]["spec"]["template"]["spec"]["volumes"]
    assert mount["mountPath"] == "/etc/config"
    assert held["configMap"]["name"] == manifests["ConfigMap"]["metadata"]["name"]
    assert set(manifests["ConfigMap"]["data"]) == {"initContainer.yaml"}
