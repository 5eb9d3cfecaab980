"""Every overlay, as kubectl renders it: what it promises, and that a real API server takes it."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from pipelines.graph.store_secret import FETCH_ENDPOINT, S3_KEYS, STORE_ENDPOINT, TOKEN
from serving.rollout.__main__ import parser as controller_options
from serving.rollout.spec import CHECKS, default_checks
from tests.cluster.kubectl import (
    Kubectl,
    Said,
    filled_in,
    kustomized,
    renamed,
    rendered,
    with_images,
)
from tests.cluster.manifests.controller_rights import ARGO, controller_rights
from tests.cluster.manifests.kfp_pods import admitted, recorded_pods, without_token
from tests.cluster.overlays import Overlays
from tests.cluster.waiting import until
from tests.manifests.allowed_connections import reaching_out, wrong_ways
from tests.manifests.hardening import faults
from tests.manifests.manifest_objects import MANIFESTS, OVERLAYS, Object, pods

SHADOWED = ("single-tenant", "a100", "release")
"""They take in the shadow."""

NAMESPACES = {"multi-tenant": {"qinglan-chengla", "qinglan-fivedoctors"}}
TENANTS = (
    "laptop-cluster/fivedoctors",
    "single-tenant/fivedoctors",
    "multi-tenant/chengla",
    "multi-tenant/fivedoctors",
    "a100",
    "release",
)

BY_HAND = ("qinglan-trust",)
"""Whose signatures count is not for an overlay to say: manifests/README.md."""


@pytest.fixture(scope="session")
def manifests(tmp_path_factory: pytest.TempPathFactory) -> Path:
    copy = filled_in(tmp_path_factory.mktemp("manifests"))
    with_images(copy)
    return copy


@pytest.fixture(scope="session", params=OVERLAYS)
def overlay(request: pytest.FixtureRequest, manifests: Path) -> tuple[str, list[Object]]:
    return request.param, rendered(manifests / "overlays" / request.param)


def of_kind(given: Sequence[Object], *kinds: str) -> list[Object]:
    return [one for one in given if one["kind"] in kinds]


def test_every_overlay_is_here() -> None:
    assert {path.parent.name for path in MANIFESTS.glob("overlays/*/kustomization.yaml")} == set(OVERLAYS)


def test_its_namespaces_are_restricted_and_guarded(overlay: tuple[str, list[Object]]) -> None:
    name, given = overlay
    spaces = of_kind(given, "Namespace")

    assert {one["metadata"]["name"] for one in spaces} == NAMESPACES.get(name, {"qinglan"})
    for space in spaces:
        assert space["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "restricted"
        assert space["metadata"]["labels"]["qinglan.dev/guarded"] == "true"
        assert space["metadata"]["labels"]["qinglan.dev/tenant"]


def test_nothing_is_outside_its_namespaces_but_the_platform(overlay: tuple[str, list[Object]]) -> None:
    name, given = overlay
    wide = {one["kind"] for one in given if "namespace" not in one["metadata"]}

    assert {one["metadata"]["namespace"] for one in given if "namespace" in one["metadata"]} == NAMESPACES.get(
        name, {"qinglan"}
    )
    assert wide == {
        "Namespace", "PriorityClass", "ClusterStorageContainer", "CustomResourceDefinition",
        "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding",
    }  # fmt: skip


def test_its_pods_are_hardened(overlay: tuple[str, list[Object]]) -> None:
    result = [pod for one in overlay[1] for pod in pods(one)]

    assert len(result) >= 6
    assert {pod.owner: faults(pod) for pod in result if faults(pod)} == {}


def test_its_rights_have_no_wildcard_and_end_at_the_namespace(overlay: tuple[str, list[Object]]) -> None:
    roles, bindings = of_kind(overlay[1], "Role"), of_kind(overlay[1], "RoleBinding")

    assert roles and bindings
    assert not of_kind(overlay[1], "ClusterRole", "ClusterRoleBinding")
    assert not [rule for role in roles for rule in role["rules"] for given in rule.values() if "*" in given]
    for binding in bindings:
        assert {subject["namespace"] for subject in binding["subjects"]} == {binding["metadata"]["namespace"]}


def test_its_gateway_alone_reaches_the_internet(overlay: tuple[str, list[Object]]) -> None:
    name, given = overlay
    policies = of_kind(given, "NetworkPolicy")

    for namespace in NAMESPACES.get(name, {"qinglan"}):
        assert wrong_ways(policies, namespace, shadow=name in SHADOWED) == []
        assert reaching_out(policies, namespace) == (set() if name == "laptop-cluster" else {"gateway"})


def test_the_labels_that_the_network_goes_by_are_on_its_pods(overlay: tuple[str, list[Object]]) -> None:
    labels = {pod.labels.get("app.kubernetes.io/name") for one in overlay[1] for pod in pods(one) if pod.labels}

    assert {"qinglan-gateway", "qinglan-rag", "qinglan-janitor"} <= labels
    tenants = {pod.labels["qinglan.dev/tenant"] for one in of_kind(overlay[1], "Deployment") for pod in pods(one)}
    assert len(tenants) == len(NAMESPACES.get(overlay[0], {"qinglan"}))


def test_the_key_of_the_paid_api_is_in_the_gateways_pod_alone(overlay: tuple[str, list[Object]]) -> None:
    holders = {pod.owner for one in overlay[1] for pod in pods(one) if "qinglan-paid-api" in str(pod.spec)}

    assert holders == {"Deployment/qinglan-gateway"}


def test_the_default_policy_asks_for_no_check_that_has_no_evidence(overlay: tuple[str, list[Object]]) -> None:
    """Traffic's own checks have theirs from every model; `quality` has it from a shadow in the same namespace."""
    name, given = overlay

    for namespace in NAMESPACES.get(name, {"qinglan"}):
        here = [one for one in of_kind(given, "Deployment") if one["metadata"]["namespace"] == namespace]
        arguments = {
            one["metadata"]["name"]: one["spec"]["template"]["spec"]["containers"][0]["args"] for one in here
        }
        services = {arg.partition("=")[2] for arg in arguments.get("qinglan-shadow", ()) if "--service=" in arg}
        controller = controller_options().parse_args(arguments["qinglan-rollout"])
        asked = {check.name for check in default_checks("rewriter" in controller.shadow)}

        assert set(controller.shadow) == services == ({"rewriter"} if name in SHADOWED else set())
        assert asked - {"quality"} == {check.name for check in CHECKS}
        assert ("quality" in asked) is (name in SHADOWED)


def test_the_key_of_what_users_asked_is_with_who_writes_it_and_who_reads_it_alone(
    overlay: tuple[str, list[Object]],
) -> None:
    name, given = overlay
    holders = {
        (pod.owner, container["name"])
        for one in given
        for pod in pods(one)
        for container in [*pod.spec.get("containers", ()), *pod.spec.get("initContainers", ())]
        if "qinglan-payloads" in str(container)
    }
    shadow, cpu = ("Deployment/qinglan-shadow", "shadow"), ("ServingRuntime/qinglan-rewriter-cpu", "kserve-container")
    runtimes = ("ServingRuntime/qinglan-rewriter-vllm", "ServingRuntime/qinglan-rewriter-vllm-full")
    vllm = {(runtime, "transformer-container") for runtime in runtimes}

    assert holders == ({shadow, cpu} if name in SHADOWED else set()) | (vllm if name in FIRST else set())
    for owner, container in holders:
        (result,) = [
            one for whole in given for pod in pods(whole) if pod.owner == owner
            for one in pod.spec["containers"] if one["name"] == container
        ]  # fmt: skip
        assert result["envFrom"] == [{"secretRef": {"name": "qinglan-payloads"}}]
        assert "$(QINGLAN_PAYLOADS)" in "".join(result["args"]), "where it is comes with the key"


def test_the_stores_secret_is_in_kserves_form(overlay: tuple[str, list[Object]]) -> None:
    accounts = [one for one in of_kind(overlay[1], "ServiceAccount") if one["metadata"]["name"] == "qinglan-serving"]
    stores = [one for one in of_kind(overlay[1], "Secret") if one["metadata"]["name"] == "qinglan-store"]

    assert accounts and len(stores) == len(accounts)
    assert all(account["secrets"] == [{"name": "qinglan-store"}] for account in accounts)
    for store in stores:
        assert {*S3_KEYS, STORE_ENDPOINT, FETCH_ENDPOINT} - {TOKEN} <= set(store["data"])
        told = store["metadata"]["annotations"]
        assert {f"serving.kserve.io/s3-{name}" for name in ("endpoint", "usehttps", "region")} <= set(told)


def test_every_claim_and_configuration_that_its_pods_name_is_there(overlay: tuple[str, list[Object]]) -> None:
    given = overlay[1]
    there = {(one["kind"], one["metadata"]["name"]) for one in given}
    for pod in (pod for one in given for pod in pods(one)):
        for volume in pod.spec.get("volumes") or ():
            if claim := volume.get("persistentVolumeClaim"):
                assert ("PersistentVolumeClaim", claim["claimName"]) in there
            if config := volume.get("configMap"):
                assert config["name"] in BY_HAND or ("ConfigMap", config["name"]) in there
        if priority := pod.spec.get("priorityClassName"):
            assert ("PriorityClass", priority) in there
        if account := pod.spec.get("serviceAccountName"):
            assert ("ServiceAccount", account) in there


def test_a_release_names_every_image_by_digest(manifests: Path) -> None:
    given = rendered(manifests / "overlays/release")
    images = {
        container["image"]
        for one in given
        for pod in pods(one)
        for container in [*pod.spec.get("containers", ()), *pod.spec.get("initContainers", ())]
    }

    assert images and all("@sha256:" in image for image in images), images


def test_settings_that_nobody_filled_in_are_refused_and_say_what_to_do(
    overlay: tuple[str, list[Object]], manifests: Path, namespace: str, cluster: Any, tmp_path: Path
) -> None:
    copy = filled_in(tmp_path / "copy")
    for example in copy.rglob("*.env.example"):
        example.with_suffix("").write_text(example.read_text())
    with_images(copy)
    given = of_kind(rendered(copy / "overlays" / overlay[0]), "Secret")
    blank = [one for one in given if not all(one["data"].values())]
    for one in blank:
        one["metadata"]["namespace"] = namespace
        said = Kubectl(cluster.kubeconfig).apply([one], "--dry-run=server")
        assert said.code != 0 and "Fill in what is blank above, then delete this line" in said.text, said.text

    assert {one["metadata"]["name"] for one in blank} == {"qinglan-store"} | (
        set() if overlay[0] == "laptop-cluster" else {"qinglan-paid-api"}
    ) | ({"qinglan-payloads"} if overlay[0] in SHADOWED else set())  # fmt: skip


FIRST = {"a100": "standard/stable", "release": "standard/stable"}
"""The rewriter that manifests/README.md names for it."""


def test_the_overlay_has_the_runtimes_of_its_first_models(overlay: tuple[str, list[Object]]) -> None:
    runtimes = {
        one["metadata"]["name"]: {each["name"] for each in one["spec"]["supportedModelFormats"]}
        for one in of_kind(overlay[1], "ServingRuntime")
    }
    for name in (FIRST.get(overlay[0], "rewriter-cpu"), "style"):
        model = yaml.safe_load((MANIFESTS / f"rollout/{name}.yaml").read_text())["spec"]["predictor"]["model"]
        assert model["modelFormat"]["name"] in runtimes[model["runtime"]], name


BUILT = ("cpu", "serve", "style")


@pytest.mark.parametrize("missing", BUILT)
def test_a_release_renders_only_with_every_image_by_digest(missing: str, tmp_path: Path) -> None:
    copy = filled_in(tmp_path)
    with_images(copy, [name for name in BUILT if name != missing])
    said = kustomized(copy / "overlays/release")

    assert said.code != 0 and f"for value qinglan/{missing}:0.1.0" in said.text, said.text


def test_nothing_of_a_release_that_was_never_built_reaches_a_fresh_cluster(
    overlays: Overlays, tmp_path: Path
) -> None:
    """No policy is there yet that would refuse its tags."""
    overlays.clear()
    kubectl = overlays.kubectl
    said = kubectl("apply", "--server-side", "-k", str(filled_in(tmp_path) / "overlays/release"))

    assert said.code != 0 and "for value qinglan/cpu:0.1.0" in said.text, said.text
    assert policies(kubectl) == []
    assert "NotFound" in kubectl("get", "namespace", "qinglan").text


def test_a_release_says_on_its_namespace_what_runs_there(manifests: Path) -> None:
    given = rendered(manifests / "overlays/release")
    (space,) = of_kind(given, "Namespace")
    told = {name.partition("/image-")[2]: digest for name, digest in space["metadata"]["annotations"].items()}
    images = {each["image"] for one in given for pod in pods(one) for each in pod.spec.get("containers", ())}

    assert {f"qinglan/{name}@{told[name]}" for name in BUILT} == images


@pytest.mark.parametrize("tenant", TENANTS)
def test_the_api_server_would_take_it_in_any_namespace(
    tenant: str, manifests: Path, namespace: str, cluster: Any, tmp_path: Path
) -> None:
    """Nothing is made: so far it goes on somebody's cluster, too."""
    given = renamed(manifests / "overlays" / tenant, namespace, tmp_path / "renamed")
    inside = [one for one in given if one["metadata"].get("namespace") == namespace]

    assert len(inside) > 30
    said = Kubectl(cluster.kubeconfig).apply(given, "--dry-run=server")
    assert said.code == 0, said.text


@pytest.mark.parametrize("name", OVERLAYS)
def test_the_overlay_is_applied_and_its_services_run(name: str, overlays: Overlays) -> None:
    kubectl = overlays.use(name)
    given = overlays.objects
    expected = {(one["metadata"]["namespace"], one["metadata"]["name"]) for one in of_kind(given, "Deployment")}

    def ready() -> bool:
        result = kubectl.all("deployments", labels="app.kubernetes.io/part-of=qinglan")
        done = {
            (one["metadata"]["namespace"], one["metadata"]["name"])
            for one in result
            if (one.get("status") or {}).get("availableReplicas") == one["spec"]["replicas"]
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
        again = kubectl("diff", "--server-side", "--force-conflicts", "-f", "-", given=given)
        if again == Said(0, ""):
            break
    assert again == Said(0, ""), f"what is applied twice is not the same:\n{again.text}"
    steps_start(kubectl, given)


def steps_start(kubectl: Kubectl, given: list[Object]) -> None:
    """In every tenant's namespace the API server takes KFP's and Argo's own pods, and gives each a token."""
    tenants = [one["metadata"]["namespace"] for one in given if is_runner(one)]
    assert tenants
    made = [pod for tenant in tenants for pod in recorded_pods(tenant)]
    with controller_rights(kubectl, ARGO):
        until(lambda: kubectl.try_to_create(made[0], ARGO) == "", "Argo's rights are known")
        for pod in made:
            assert without_token(admitted(kubectl, pod, ARGO)) == []


def is_runner(one: Object) -> bool:
    return bool(one["kind"] == "ServiceAccount" and one["metadata"]["name"] == "pipeline-runner")


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

    given = {one["kind"]: one for one in rendered(install)}

    (mount,) = given["Deployment"]["spec"]["template"]["spec"]["containers"][0]["volumeMounts"]
    (held,) = given["Deployment"]["spec"]["template"]["spec"]["volumes"]
    assert mount["mountPath"] == "/etc/config"
    assert held["configMap"]["name"] == given["ConfigMap"]["metadata"]["name"]
    assert set(given["ConfigMap"]["data"]) == {"initContainer.yaml"}
