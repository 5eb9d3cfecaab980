"""The rights of each account in a tenant's namespace, on a real API server; nothing is made (dry run)."""

from collections.abc import Iterator

import pytest

from tests.cluster.kubectl import Kubectl
from tests.cluster.manifests.controller_rights import ARGO, controller_rights
from tests.cluster.manifests.policy_actions import (
    CLUSTER_WIDE,
    DRAINER,
    GATEWAY,
    IMAGES,
    NODE,
    ONLY_THE_ROLLOUT,
    PART,
    PLATFORM,
    PREDICTOR,
    RAG,
    ROLLOUT,
    Row,
    delete,
    merge,
)
from tests.cluster.manifests.policy_model_rows import MODELS, TRUST, WITHOUT_DIGESTS
from tests.cluster.manifests.policy_objects import (
    API,
    LEASE,
    NS,
    PIPELINE,
    ROLLOUT_ACCOUNT,
    SERVICE,
    SERVING,
    STEP,
    STRANGER,
    crd,
    isvc,
    people,
    pod,
    step,
    stranger,
    template,
    thing,
    workload,
)
from tests.cluster.manifests.policy_rows import ROWS
from tests.cluster.overlays import Overlays
from tests.cluster.rollout.test_kserve import is_ready, state
from tests.cluster.rollout.test_modelrollout import rollout
from tests.cluster.waiting import until
from tests.manifests.manifest_objects import Object

MODEL_BY_HAND: Object = {"spec": {"predictor": {"model": {"storageUri": "s3://models/latest"}}}}


@pytest.fixture(scope="module")
def guarded(overlays: Overlays) -> Iterator[Kubectl]:
    """Create the objects that the rows act on, and the rights of controllers that are not installed here."""
    kubectl = overlays.use("release")
    kinds = [crd("kubeflow.org/v1alpha1", "PodDefault"), crd("gateway.networking.k8s.io/v1", "GRPCRoute")]
    own_deployment = workload("Deployment", "own", template())
    own_deployment["spec"]["replicas"] = 0
    plain = [
        *stranger(),
        *people(),
        thing("ServiceAccount", "default-editor"),
        thing("ConfigMap", "qinglan-trust", **TRUST),
        own_deployment,
        thing("Service", "own", spec=SERVICE),
        pod(STEP),
    ]
    serverless = state("knative/stable")
    serverless["metadata"]["name"] = "serverless"
    kubectl.must("apply", "-f", "-", manifests=[*kinds, *plain])
    # Policies take effect a moment after they are made.
    for manifest, account, answer in (
        (isvc("probe"), STRANGER, ONLY_THE_ROLLOUT),
        (pod("probe", image="one:tag"), "", IMAGES),
        (pod("probe", account="qinglan-gateway"), "", PART),
    ):
        until(lambda: answer in kubectl.try_to_create(manifest, account), answer)  # noqa: B023
    kubectl.must("create", "-f", "-", manifests=[isvc("rewriter"), serverless, LEASE], account=ROLLOUT_ACCOUNT)
    kubectl.must("create", "-f", "-", manifests=[pod("bystander")], account=STRANGER)
    kubectl.must("create", "-f", "-", manifests=[rollout(NS)], account=PIPELINE)
    set_phase(kubectl, "Analyse")
    with controller_rights(kubectl, *CLUSTER_WIDE, NODE, DRAINER):
        until(lambda: kubectl.try_to_create(step(), ARGO) == "", "Argo's rights are known")
        until(lambda: "PodDefault" in kubectl("api-resources", "--api-group=kubeflow.org").text, "PodDefaults served")
        for label in (GATEWAY, RAG, ROLLOUT, PREDICTOR):
            kubectl.a_pod(NS, label)
        until(lambda: is_ready(kubectl.get("isvc", "rewriter", NS)), "the model is ready")
        # Knative's own sidecar has no digest, so the pods of the other model never come; its objects do.
        for kind in ("ksvc", "configuration.serving.knative.dev", "route.serving.knative.dev"):
            until(lambda: kubectl.exists(kind, "serverless-predictor", NS), kind)  # noqa: B023
        for kind in API:  # the quota's controller looks for new kinds every 30 s, and admits none before
            honest = workload(kind, "honest", template())
            until(lambda: "unknown for quota" not in kubectl.try_to_create(honest, STRANGER), kind)  # noqa: B023
        yield kubectl
    kubectl.must("delete", "modelrollout", "rewriter-1", "-n", NS)
    kubectl.delete_all("isvc", NS)
    kubectl.must("delete", "-f", "-", manifests=[*kinds, *plain, pod("bystander"), LEASE])


def set_phase(kubectl: Kubectl, phase: str) -> None:
    path = kubectl.server.resource("modelrollouts").path(NS, "rewriter-1", "status")
    assert kubectl.server.patch(path, {"status": {"phase": phase}}, ROLLOUT_ACCOUNT).refusal == ""


def row_name(row: Row) -> str:
    return f"{row.account or 'administrator'}: {row.what}"


def check(kubectl: Kubectl, row: Row) -> None:
    answer = row.action(kubectl, row.account)

    assert (row.answer in answer) if row.answer else answer == "", answer


@pytest.mark.parametrize("row", [*ROWS, *MODELS], ids=row_name)
def test_the_api_server_answers_as_the_table_says(guarded: Kubectl, row: Row) -> None:
    check(guarded, row)


@pytest.mark.parametrize("phase", ["Verify", "Apply", "WaitReady", "Analyse", "Promote", "Rollback", "Done"])
def test_a_rollout_under_way_is_ended_before_it_is_deleted(guarded: Kubectl, phase: str) -> None:
    set_phase(guarded, phase)
    remove = delete("modelrollouts", "rewriter-1")

    refused, administrator = remove(guarded, STRANGER), remove(guarded, "")
    set_phase(guarded, "Analyse")

    assert refused == "" if phase in ("Verify", "Done") else f"({phase})" in refused
    assert administrator == "", "who may change the policies may delete what no controller can end"


def test_a_nodes_kubelet_gets_the_token_of_a_pod_that_it_runs(guarded: Kubectl) -> None:
    words = ["create", "token", "qinglan-rollout", "-n", NS]

    assert guarded(*words, f"--as={NODE}").code == 0
    assert PLATFORM in guarded(*words, account=STRANGER).text


def test_a_list_of_images_by_tag_is_exact_and_old_objects_stay(guarded: Kubectl) -> None:
    """A tag is listed and removed again: as if the object had been there before the namespace was a release's."""
    listed = guarded.get("namespace", NS)["metadata"]["annotations"]["qinglan.dev/images-by-tag"]
    old = workload("ReplicaSet", "one", template(containers=[{"name": "one", "image": "old:tag"}]))
    old["spec"]["replicas"] = 0

    list_images(guarded, f"{listed} old:tag")
    until(lambda: guarded.try_to_create(old) == "", "the list in effect")
    for image in ("old:tag2", "evil/old:tag"):
        assert IMAGES in guarded.try_to_create(pod("one", image=image))
    guarded.must("create", "-f", "-", manifests=[old])
    list_images(guarded, listed)
    until(lambda: guarded.try_to_create(pod("probe", image="old:tag")) != "", "the list without it in effect")

    assert guarded("label", "rs", "one", "-n", NS, "team=search").code == 0
    assert "and not: new:tag" in guarded("set", "image", "rs/one", "-n", NS, "one=new:tag").text
    guarded.must("delete", "rs", "one", "-n", NS)


def list_images(kubectl: Kubectl, images: str) -> None:
    kubectl.must("annotate", "namespace", NS, "--overwrite", f"qinglan.dev/images-by-tag={images}")


def test_the_gateway_itself_is_rolled_out_again(guarded: Kubectl) -> None:
    """The policies let the controllers do their work."""
    before = guarded.a_pod(NS, GATEWAY)
    guarded.must("rollout", "restart", "deployment/qinglan-gateway", "-n", NS)

    until(lambda: guarded.a_pod(NS, GATEWAY) != before, "another pod")
    until(
        lambda: guarded.get("deployment", "qinglan-gateway", NS)["status"].get("availableReplicas") == 1,
        "the gateway is available",
    )


def test_a_spec_does_not_come_in_by_the_status(guarded: Kubectl) -> None:
    """Also not from KServe's controllers."""
    path = guarded.server.resource("isvc").path(NS, "rewriter", "status")
    answer = guarded.server.patch(path, MODEL_BY_HAND, "kserve/kserve-controller-manager", dryRun="All")

    assert answer.refusal == ""
    assert answer.body["spec"] == guarded.get("isvc", "rewriter", NS)["spec"]


CLUSTER_WIDE_OBJECTS = (
    "clusterstoragecontainers.serving.kserve.io/qinglan-release", "clusterservingruntimes.serving.kserve.io/any",
    "configmaps/inferenceservice-config", "namespaces/any", "customresourcedefinitions.apiextensions.k8s.io/any",
    "validatingadmissionpolicies.admissionregistration.k8s.io/qinglan-models-by-rollout",
    "validatingadmissionpolicybindings.admissionregistration.k8s.io/qinglan-models-by-rollout",
    "mutatingwebhookconfigurations.admissionregistration.k8s.io/any",
)  # fmt: skip


@pytest.mark.parametrize("account", [STRANGER, ROLLOUT_ACCOUNT, PIPELINE, SERVING])
def test_cluster_wide_objects_are_out_of_a_tenants_reach(guarded: Kubectl, account: str) -> None:
    """KServe's own settings and storage containers, the policies, and other namespaces."""
    for target in CLUSTER_WIDE_OBJECTS:
        kind, name = target.split("/")
        resource, _, group = kind.partition(".")
        for namespace in ("", "kserve"):
            for verb in ("create", "update", "patch", "delete"):
                wish = {"group": group, "resource": resource, "name": name, "namespace": namespace, "verb": verb}
                assert not allowed(guarded, wish, account), wish


def allowed(kubectl: Kubectl, wish: Object, account: str) -> bool:
    """Ask as `kubectl auth can-i` does."""
    review = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview"}
    answer = kubectl.server.create({**review, "spec": {"resourceAttributes": wish}}, account)
    return bool(answer.body["status"]["allowed"])


@pytest.fixture(scope="module")
def without_digests(guarded: Kubectl) -> Iterator[Kubectl]:
    """Take the policy on digests away."""
    by_hand = merge("isvc", "rewriter", MODEL_BY_HAND)
    binding = guarded.get("validatingadmissionpolicybinding", "qinglan-models-by-digest")
    guarded.must("delete", "validatingadmissionpolicybinding", "qinglan-models-by-digest")
    until(lambda: by_hand(guarded, ROLLOUT_ACCOUNT) == "", "the policy on digests is off")
    yield guarded
    metadata = {name: binding["metadata"][name] for name in ("name", "labels")}
    guarded.must("create", "-f", "-", manifests=[{**binding, "metadata": metadata}])
    until(lambda: by_hand(guarded, ROLLOUT_ACCOUNT) != "", "the policy on digests is on again")


@pytest.mark.parametrize("row", WITHOUT_DIGESTS, ids=row_name)
def test_only_the_rollout_changes_the_model(without_digests: Kubectl, row: Row) -> None:
    check(without_digests, row)
