"""Tries what the manifests forbid, on an applied release: each attempt is refused, and the answer names the policy.

Rights alone would refuse most of it. So the account that tries is given every right that it would need.
"""

import copy
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.cluster.kubectl import Kubectl, filled_in, rendered
from tests.cluster.overlays import Overlays
from tests.cluster.waiting import until
from tests.manifests.manifest_objects import MANIFESTS, Object

NS = "qinglan"
ROLLOUT = f"{NS}/qinglan-rollout"
STRANGER = f"{NS}/stranger"
DIGEST = f"qinglan/cpu@sha256:{'a' * 64}"
OLD, NEW = "1" * 64, "2" * 64
HARDENED: Object = {
    "allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}, "runAsNonRoot": True, "runAsUser": 65532,
    "seccompProfile": {"type": "RuntimeDefault"},
}  # fmt: skip


@pytest.fixture(scope="module")
def house(overlays: Overlays) -> Iterator[Kubectl]:
    kubectl = overlays.use("release")
    kubectl.must("apply", "-f", "-", manifests=stranger())
    # Policies take effect a moment after they are made.
    until(lambda: "Forbidden" in kubectl.try_to_create(isvc("probe"), STRANGER), "the model policy in effect")
    until(lambda: "by digest" in kubectl.try_to_create(pod("probe", image="one:tag")), "the image policy in effect")
    until(
        lambda: "a part of Qinglan" in kubectl.try_to_create(pod("probe", account="qinglan-gateway")),
        "the pods' policy",
    )
    kubectl.must("create", "-f", "-", manifests=[isvc("rewriter")], account=ROLLOUT)
    kubectl.must("create", "-f", "-", manifests=[pod("bystander")], account=STRANGER)
    yield kubectl
    kubectl.must("delete", "pod", "bystander", "-n", NS)
    kubectl.delete_all("isvc", NS)
    kubectl.must("delete", "-f", "-", manifests=stranger())


def stranger() -> list[Object]:
    """Somebody with every right in the namespace that a rollout would need, and more."""
    meta = {"name": "stranger", "namespace": NS}
    groups = [
        "", "apps", "batch", "serving.kserve.io", "kubeflow.org", "networking.k8s.io", "monitoring.coreos.com",
        "serving.knative.dev", "gateway.networking.k8s.io", "discovery.k8s.io", "qinglan.dev", "coordination.k8s.io",
        "networking.internal.knative.dev", "snapshot.storage.k8s.io",
    ]  # fmt: skip
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "stranger"}
    return [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": meta},
        {
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": meta,
            "rules": [{"apiGroups": groups, "resources": ["*"], "verbs": ["*"]}],
        },
        {
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": meta, "roleRef": role,
            "subjects": [{"kind": "ServiceAccount", "name": "stranger", "namespace": NS}],
        },
    ]  # fmt: skip


def isvc(name: str) -> Object:
    (manifest,) = list(yaml.safe_load_all((MANIFESTS / "rollout/standard/stable.yaml").read_text()))
    manifest["metadata"] |= {"name": name, "namespace": NS}
    return dict(manifest)


def pod(name: str, image: str = DIGEST, account: str = "default", **changes: Any) -> Object:
    container = {"name": "one", "image": image, "securityContext": HARDENED}
    spec = {"serviceAccountName": account, "containers": [container], **changes}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": NS}, "spec": spec}


def test_a_pod_as_it_should_be_is_admitted(house: Kubectl) -> None:
    """So that each refusal below is for the one thing that it changes."""
    assert house.try_to_create(pod("good")) == ""
    assert house.try_to_create(pod("good"), STRANGER) == ""


@pytest.mark.parametrize(
    "answer, security",
    [
        ("privileged", {"privileged": True, "allowPrivilegeEscalation": True}),
        ("allowPrivilegeEscalation", {"allowPrivilegeEscalation": True}),
        ("runAsNonRoot", {"runAsNonRoot": False, "runAsUser": None}),
        ("runAsUser=0", {"runAsUser": 0}),
        ("unrestricted capabilities", {"capabilities": {"drop": ["ALL"], "add": ["NET_ADMIN"]}}),
        ("seccompProfile", {"seccompProfile": {"type": "Unconfined"}}),
    ],
)
def test_a_pod_with_more_power_than_it_needs_is_refused(house: Kubectl, answer: str, security: Object) -> None:
    manifest = pod("strong")
    manifest["spec"]["containers"][0]["securityContext"] = {**HARDENED, **security}

    refused = house.try_to_create(manifest)

    assert 'violates PodSecurity "restricted' in refused and answer in refused, refused


@pytest.mark.parametrize(
    "changes", [{"hostNetwork": True}, {"hostPID": True}, {"volumes": [{"name": "a", "hostPath": {"path": "/"}}]}]
)
def test_a_pod_that_reaches_into_its_node_is_refused(house: Kubectl, changes: Object) -> None:
    assert "violates PodSecurity" in house.try_to_create(pod("deep", **changes))


FRAMEWORKS = ("sklearn", "xgboost", "tensorflow", "triton", "onnx", "huggingface", "pmml", "lightgbm", "paddle")
WAYS: dict[str, Object] = {
    "storageUri": {"predictor": {"model": {"storageUri": f"s3://qinglan/fivedoctors/releases/{NEW}"}}},
    "a canary": {
        "canary": [
            {"trafficPercent": 100, "predictor": {"name": "c", "model": {
                "name": "", "modelFormat": {"name": "qinglan-rewriter-adapter"}, "runtime": "qinglan-rewriter-vllm",
                "storageUri": f"s3://qinglan/fivedoctors/releases/{NEW}"}, "storageContainerName": "qinglan-release"}}
        ]
    },
    "storageUris": {"predictor": {"storageUris": [{"uri": f"s3://q/releases/{NEW}", "mountPath": "/mnt/models"}]}},
    "model.storage": {"predictor": {"model": {"storageUri": None, "storage": {"path": "other"}}}},
    "containers": {"predictor": {"containers": [{"name": "kserve-container", "image": "evil"}]}},
    "a framework's own field": {"predictor": {"model": None, "pytorch": {"storageUri": "s3://evil/model"}}},
    "a transformer": {"transformer": {"containers": [{"name": "kserve-container", "image": "evil"}]}},
    "another runtime": {"predictor": {"model": {"runtime": "qinglan-rewriter-cpu"}}},
    "an image": {"predictor": {"model": {"image": "evil"}}},
    "arguments": {"predictor": {"model": {"args": ["--model=/evil"]}}},
    "another account": {"predictor": {"serviceAccountName": "stranger"}},
    "canaryTrafficPercent": {"predictor": {"canaryTrafficPercent": 50}},
    "another storage initialiser": {"predictor": {"storageContainerName": "evil"}},
    "an init container": {"predictor": {"initContainers": [{"name": "first", "image": "evil"}]}},
    "environment": {"predictor": {"model": {"env": [{"name": "HF_HUB_OFFLINE", "value": "0"}]}}},
    "an explainer": {"explainer": {"containers": [{"name": "kserve-container", "image": "evil"}]}},
    "workers": {"predictor": {"workerSpec": {"pipelineParallelSize": 2}}},
    **{
        f"the field {name}": {"predictor": {"model": None, name: {"storageUri": f"s3://q/releases/{NEW}"}}}
        for name in FRAMEWORKS
    },
}  # fmt: skip


@pytest.fixture(scope="class")
def by_rollout_alone(house: Kubectl) -> Iterator[Kubectl]:
    """Without the policy on digests, which refuses most of these ways too."""
    binding = house.get("validatingadmissionpolicybinding", "qinglan-models-by-digest")
    loose = {"spec": {"predictor": {"model": {"storageUri": "s3://models/latest"}}}}
    house.must("delete", "validatingadmissionpolicybinding", "qinglan-models-by-digest")
    until(lambda: merged(house, loose, ROLLOUT) == "", "the policy on digests is off")
    yield house
    again = {**binding, "metadata": {"name": binding["metadata"]["name"], "labels": binding["metadata"]["labels"]}}
    house.must("create", "-f", "-", manifests=[again])
    until(lambda: merged(house, loose, ROLLOUT) != "", "the policy on digests is on again")


class TestWhoeverTries:
    @pytest.mark.parametrize("account", [STRANGER, ""], ids=["stranger", "administrator"])
    @pytest.mark.parametrize("attempt", WAYS)
    def test_only_the_rollout_changes_the_model(self, by_rollout_alone: Kubectl, attempt: str, account: str) -> None:
        refused = merged(by_rollout_alone, {"spec": WAYS[attempt]}, account)

        assert "only qinglan/qinglan-rollout may change what rewriter serves" in refused, refused


def merged(kubectl: Kubectl, change: Object, account: str) -> str:
    return kubectl.try_to_patch("isvc", "rewriter", NS, change, account)


def test_the_rollout_itself_may(house: Kubectl) -> None:
    assert merged(house, {"spec": WAYS["storageUri"]}, ROLLOUT) == ""
    assert merged(house, {"spec": {"predictor": {"minReplicas": 1}}}, ROLLOUT) == ""


def test_other_accounts_may_change_fields_that_do_not_touch_the_model(house: Kubectl) -> None:
    assert merged(house, {"metadata": {"labels": {"team": "search"}}}, STRANGER) == ""
    assert merged(house, {"metadata": {"annotations": {"note": "looked at"}}}, STRANGER) == ""


@pytest.mark.parametrize(
    "annotations",
    [
        {"serving.kserve.io/storageSecretName": "other"},
        {"serving.kserve.io/autoscalerClass": None},
        {"internal.serving.kserve.io/storage-initializer-sourceuri": "s3://evil/model"},
    ],
)
def test_kserves_own_annotations_are_the_rollouts_too(house: Kubectl, annotations: Object) -> None:
    refused = merged(house, {"metadata": {"annotations": annotations}}, STRANGER)

    assert "may change annotations of serving.kserve.io" in refused, refused


def test_only_the_rollout_creates_or_replaces_an_inference_service(house: Kubectl) -> None:
    other = isvc("rewriter")
    other["spec"]["predictor"]["model"]["storageUri"] = f"s3://qinglan/other/releases/{NEW}"

    for account in (STRANGER, "", f"{NS}/pipeline-runner"):
        assert house.try_to_create(isvc("second"), account) != ""
        options = ("--server-side", "--force-conflicts", "--dry-run=server", "-f", "-")
        answer = house("apply", *options, manifests=[other], account=account)
        assert answer.code != 0 and ("only qinglan/qinglan-rollout" in answer.text or "forbidden" in answer.text), (
            answer.text
        )


def test_the_rollout_of_another_namespace_is_a_stranger_here(house: Kubectl) -> None:
    refused = merged(house, {"spec": WAYS["storageUri"]}, "default/qinglan-rollout")

    assert refused != ""


@pytest.mark.parametrize(
    "change",
    [
        {"predictor": {"model": {"storageUri": "s3://models/latest"}}},
        {"predictor": {"model": {"storageUri": f"s3://qinglan/releases/{NEW[:-1]}"}}},
        {"predictor": {"model": {"storageUri": f"s3://qinglan/releases/{NEW}/../latest"}}},
        {"predictor": {"model": {"storageUri": f"https://evil/releases/{NEW}"}}},
        {"predictor": {"model": {"storageUri": "pvc://claim/model"}}},
        WAYS["storageUris"], WAYS["model.storage"], WAYS["containers"], WAYS["a framework's own field"],
        WAYS["a transformer"], WAYS["an image"], WAYS["arguments"], WAYS["an init container"],
        WAYS["another storage initialiser"], {"predictor": {"storageContainerName": None}},
        {"predictor": {"model": {"storageUri": f"s3://qinglan/fivedoctors/releases/{NEW}/model"}}},
        {"predictor": {"model": {"storageUri": f"s3://qinglan/fivedoctors/releases/{NEW}/"}}},
    ],
    ids=str,
)  # fmt: skip
def test_not_even_the_rollout_serves_what_no_digest_names(house: Kubectl, change: Object) -> None:
    refused = merged(house, {"spec": change}, ROLLOUT)

    assert "'qinglan-models-by-digest' with binding 'qinglan-models-by-digest' denied request" in refused, refused


def test_a_canary_is_named_by_its_digest_too(house: Kubectl) -> None:
    change: Object = copy.deepcopy({"spec": WAYS["a canary"]})
    change["spec"]["canary"][0]["trafficPercent"] = 10
    assert merged(house, change, ROLLOUT) == ""

    change["spec"]["canary"][0]["predictor"]["model"]["storageUri"] = "s3://models/latest"
    assert "names a release by its digest" in merged(house, change, ROLLOUT)


TEMPLATE: Object = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "one", "image": "one:tag"}]}}
BY_TAG: dict[str, Object] = {
    "Pod": pod("one", image="one:tag"),
    "init container": pod("one", initContainers=[{"name": "first", "image": "one", "securityContext": HARDENED}]),
    "Deployment": {
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "one", "namespace": NS},
        "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": TEMPLATE},
    },
    "ReplicaSet": {
        "apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": "one", "namespace": NS},
        "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": TEMPLATE},
    },
    "image volume": pod("one", volumes=[{"name": "code", "image": {"reference": "one:tag"}}]),
    "CronJob": {
        "apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": "one", "namespace": NS},
        "spec": {"schedule": "0 0 * * *", "jobTemplate": {"spec": {"template": {
            **TEMPLATE, "spec": {**TEMPLATE["spec"], "restartPolicy": "Never"}}}}},
    },
    "PyTorchJob": {
        "apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": {"name": "one", "namespace": NS},
        "spec": {"pytorchReplicaSpecs": {"Master": {"replicas": 1, "template": {"spec": {"containers": [
            {"name": "pytorch", "image": "one:tag"}]}}}}},
    },
    "ServingRuntime": {
        "apiVersion": "serving.kserve.io/v1alpha1", "kind": "ServingRuntime",
        "metadata": {"name": "one", "namespace": NS},
        "spec": {"containers": [{"name": "kserve-container", "image": "one:tag"}]},
    },
}  # fmt: skip


@pytest.mark.parametrize("kind", BY_TAG)
def test_in_a_release_an_image_by_tag_is_refused(house: Kubectl, kind: str) -> None:
    refused = house.try_to_create(BY_TAG[kind])

    assert "in a namespace of a release an image is named by digest" in refused, refused
    assert "and not: one" in refused


@pytest.mark.parametrize("kind", BY_TAG)
def test_the_same_by_digest_is_admitted(house: Kubectl, kind: str) -> None:
    text = re.sub(r"one:tag|(?<=image: )one\b", DIGEST, yaml.safe_dump(BY_TAG[kind]))

    # The quota's controller looks for new kinds every 30 s; until it has found one, nothing of that kind is admitted.
    until(lambda: "status unknown for quota" not in house.try_to_create(yaml.safe_load(text)), "the quota counts it")

    assert house.try_to_create(yaml.safe_load(text)) == ""


def test_objects_older_than_the_release_can_be_deleted_but_not_moved_to_another_tag(house: Kubectl) -> None:
    """A tag is taken off the list again: as if the object had been there before the namespace was a release's."""
    listed = house.get("namespace", NS)["metadata"]["annotations"]["qinglan.dev/images-by-tag"]
    old = yaml.safe_load(yaml.safe_dump(BY_TAG["ReplicaSet"]).replace("one:tag", "old:tag"))
    old["spec"]["replicas"] = 0
    by_tag(house, f"{listed} old:tag")
    until(lambda: house.try_to_create(old) == "", "the list in effect")
    house.must("create", "-f", "-", manifests=[old])
    by_tag(house, listed)
    until(lambda: house.try_to_create(pod("probe", image="old:tag")) != "", "the list without it in effect")

    assert house("label", "rs", "one", "-n", NS, "team=search").code == 0
    changed = house("set", "image", "rs/one", "-n", NS, "one=new:tag")
    assert changed.code != 0 and "and not: new:tag" in changed.text, changed.text
    house.must("delete", "rs", "one", "-n", NS)


def by_tag(kubectl: Kubectl, images: str) -> None:
    kubectl.must("annotate", "namespace", NS, "--overwrite", f"qinglan.dev/images-by-tag={images}")


def test_images_that_the_platform_injects_by_tag_are_listed_exactly(house: Kubectl) -> None:
    before = house.get("namespace", NS)["metadata"]["annotations"]["qinglan.dev/images-by-tag"]
    by_tag(house, "kfp/launcher:2.17 kfp/driver:2.17")
    until(lambda: house.try_to_create(pod("one", image="kfp/driver:2.17")) == "", "the list in effect")
    assert "by digest" in house.try_to_create(pod("one", image="kfp/driver:2.18"))
    assert "by digest" in house.try_to_create(pod("one", image="evil/kfp/driver:2.17"))
    by_tag(house, before)
    until(lambda: house.try_to_create(pod("one", image="kfp/driver:2.17")) != "", "the list is as it was")


def test_a_container_slipped_into_a_running_pod_is_refused_too(house: Kubectl) -> None:
    answer = house("debug", "bystander", "-n", NS, "--image=busybox:latest", "--profile=restricted", "--attach=false")

    assert answer.code != 0 and "named by digest" in answer.text, answer.text


def test_a_releases_digests_are_not_replaced_by_tags(house: Kubectl, tmp_path: Path) -> None:
    manifests = rendered(filled_in(tmp_path) / "overlays/a100")
    answer = house.apply([manifest for manifest in manifests if manifest["kind"] == "Deployment"], "--dry-run=server")

    assert answer.code != 0
    assert "named by digest (name@sha256:...), and not: qinglan/cpu:0.1.0" in answer.text, answer.text


def secret(**container: Any) -> Object:
    manifest = pod("thief")
    manifest["spec"]["containers"][0] |= container
    return manifest


THEFTS: dict[str, Object] = {
    "by account": pod("thief", account="qinglan-gateway"),
    "by label": {**pod("thief"), "metadata": {"name": "thief", "namespace": NS, "labels": {
        "app.kubernetes.io/name": "qinglan-gateway"}}},
    "by env": secret(env=[{"name": "A", "valueFrom": {"secretKeyRef": {"name": "qinglan-paid-api", "key": "A"}}}]),
    "by envFrom": secret(envFrom=[{"secretRef": {"name": "qinglan-paid-api"}}]),
    "by volume": pod("thief", volumes=[{"name": "a", "secret": {"secretName": "qinglan-paid-api"}}]),
    "by projected volume": pod("thief", volumes=[
        {"name": "a", "projected": {"sources": [{"secret": {"name": "qinglan-paid-api"}}]}}]),
    "by the journal": pod("thief", volumes=[
        {"name": "a", "persistentVolumeClaim": {"claimName": "qinglan-journal"}}]),
    "by init container": pod("thief", initContainers=[{
        "name": "first", "image": DIGEST, "securityContext": HARDENED,
        "envFrom": [{"secretRef": {"name": "qinglan-paid-api"}}]}]),
}  # fmt: skip


@pytest.mark.parametrize("account", [STRANGER, ""], ids=["stranger", "administrator"])
@pytest.mark.parametrize("attempt", THEFTS)
def test_only_the_gateways_deployment_gets_the_gateways_labels(house: Kubectl, attempt: str, account: str) -> None:
    assert "what belongs to a part of Qinglan is for that part alone" in house.try_to_create(THEFTS[attempt], account)


def test_a_running_pod_does_not_become_the_gateway(house: Kubectl) -> None:
    name = house.a_pod(NS, "app.kubernetes.io/name=qinglan-rag")
    answer = house("label", "pod", name, "-n", NS, "--overwrite", "app.kubernetes.io/name=qinglan-gateway")

    assert answer.code != 0 and "what belongs to a part of Qinglan" in answer.text, answer.text


def test_the_gateways_own_pod_runs(house: Kubectl) -> None:
    until(
        lambda: house.get("deployment", "qinglan-gateway", NS)["status"].get("availableReplicas") == 1,
        "the gateway is available",
    )


def test_more_cards_than_the_tenant_has_are_refused(house: Kubectl) -> None:
    manifest = pod("greedy")
    cards = {"nvidia.com/gpu": "25"}
    manifest["spec"]["containers"][0]["resources"] = {"limits": cards, "requests": cards}

    assert "exceeded quota: qinglan, requested: requests.nvidia.com/gpu=25" in house.try_to_create(manifest)


@pytest.mark.parametrize("kind", ["NodePort", "LoadBalancer"])
def test_no_service_opens_a_way_past_the_gateways_of_the_cluster(house: Kubectl, kind: str) -> None:
    service = {
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": "open", "namespace": NS},
        "spec": {"type": kind, "ports": [{"port": 80}], "selector": {"a": "b"}},
    }  # fmt: skip

    assert "exceeded quota" in house.try_to_create(service)
