"""Every way to serve another model that does not go through the InferenceService's own fields is tried, and refused.

By somebody with every right in the namespace and, where no administrator has a reason to, by an administrator.
"""

import copy
import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.cluster.kubectl import Kubectl
from tests.cluster.manifests.test_manifests_policies import DIGEST, NS, ROLLOUT, STRANGER, isvc, pod, stranger
from tests.cluster.overlays import Overlays
from tests.cluster.rollout.test_kserve import is_ready, ready, state
from tests.cluster.rollout.test_modelrollout import rollout
from tests.cluster.waiting import until
from tests.manifests.manifest_objects import Object

EVERYBODY = pytest.mark.parametrize("account", [STRANGER, ""], ids=["stranger", "administrator"])
PODS = "what belongs to a part of Qinglan is for that part alone"
BY_CONTROLLERS = "is made by KServe's and Knative's controllers"
REFUSED = (PODS, BY_CONTROLLERS)


@pytest.fixture(scope="module")
def guarded(overlays: Overlays) -> Iterator[Kubectl]:
    """A model is served, in Standard mode and in Knative's; the stranger has rights on all that stands behind it."""
    kubectl = overlays.use("a100")
    everything = stranger()
    knative = state("knative/stable")
    knative["metadata"]["name"] = "serverless"
    kubectl.must("apply", "-f", "-", manifests=everything)
    until(
        lambda: BY_CONTROLLERS in kubectl.try_to_create(BESIDE["an address"], STRANGER),
        "the policies in effect",
    )
    kubectl.must("create", "-f", "-", manifests=[isvc("rewriter"), knative], account=ROLLOUT)
    kubectl.must("create", "-f", "-", manifests=[rollout(NS)], account=STRANGER)
    for name in ("rewriter", "serverless"):
        until(lambda name=name: ready(kubectl, name), f"{name} ready")  # type: ignore[misc]
    yield kubectl
    kubectl.must("delete", "modelrollouts,isvc", "--all", "-n", NS, "--wait")
    kubectl.must("delete", "configmap", "qinglan-trust", "-n", NS, "--ignore-not-found")
    kubectl.must("delete", "-f", "-", manifests=everything)


def patched(kubectl: Kubectl, kind: str, name: str, change: Object, account: str, subresource: str = "") -> str:
    return kubectl.try_to_patch(kind, name, NS, change, account, subresource)


POD = {"spec": {"template": {"spec": {"containers": [{"name": "kserve-container", "image": DIGEST}]}}}}
EVIL = {"rules": [{"backendRefs": [{"name": "evil", "port": 80}]}]}
BEHIND: dict[str, tuple[str, str, Object]] = {
    "the Deployment's image": ("deployment", "rewriter-predictor", POD),
    "the Deployment's labels": ("deployment", "rewriter-predictor", {"metadata": {"labels": {"app": None}}}),
    "the Service's selector": ("service", "rewriter-predictor", {"spec": {"selector": {"app": "evil"}}}),
    "the Service's kind": ("service", "rewriter-predictor", {"spec": {"externalName": "evil.example"}}),
    "Knative's service": ("ksvc", "serverless-predictor", POD),
    "Knative's configuration": ("configuration.serving.knative.dev", "serverless-predictor", POD),
    "Knative's route": ("route.serving.knative.dev", "serverless-predictor", {"spec": {"traffic": []}}),
    "HTTPRoute": ("httproute", "rewriter", {"spec": EVIL}),
}  # fmt: skip


@EVERYBODY
@pytest.mark.parametrize("attempt", BEHIND)
def test_only_the_controllers_change_the_objects_that_kserve_makes(
    guarded: Kubectl, attempt: str, account: str
) -> None:
    kind, name, change = BEHIND[attempt]
    refused = patched(guarded, kind, name, change, account)

    assert any(answer in refused for answer in REFUSED), refused


def with_labels(manifest: Object, **labels: str) -> Object:
    result = copy.deepcopy(manifest)
    result["metadata"]["labels"] = labels
    return result


def other(api: str, kind: str, **fields: Any) -> Object:
    return {"apiVersion": api, "kind": kind, "metadata": {"name": "other", "namespace": NS}, **fields}


ISVC = "serving.kserve.io/inferenceservice"
BESIDE: dict[str, Object] = {
    "a pod by its label": with_labels(pod("other"), app="isvc.rewriter-predictor"),
    "a pod by KServe's label": with_labels(pod("other"), **{ISVC: "rewriter"}),
    "a Deployment of such pods": other("apps/v1", "Deployment", spec={
        "selector": {"matchLabels": {"app": "isvc.rewriter-predictor"}},
        "template": {"metadata": {"labels": {"app": "isvc.rewriter-predictor"}}, "spec": pod("other")["spec"]}}),
    "a Job of such pods": other("batch/v1", "Job", spec={
        "template": {"metadata": {"labels": {"app": "isvc.rewriter-predictor"}},
                     "spec": {**pod("other")["spec"], "restartPolicy": "Never"}}}),
    "an address": other("discovery.k8s.io/v1", "EndpointSlice", addressType="IPv4",
                        endpoints=[{"addresses": ["10.9.9.9"]}], ports=[{"port": 8080}]),
    "an address of old": other("v1", "Endpoints", subsets=[
        {"addresses": [{"ip": "10.9.9.9"}], "ports": [{"port": 8080}]}]),
    "a route": other("gateway.networking.k8s.io/v1", "HTTPRoute", spec=EVIL),
    "a service of Knative": other("serving.knative.dev/v1", "Service", spec=POD["spec"]),
}  # fmt: skip


@EVERYBODY
@pytest.mark.parametrize("attempt", BESIDE)
def test_nothing_else_is_put_where_it_is_asked(guarded: Kubectl, attempt: str, account: str) -> None:
    refused = guarded.try_to_create(BESIDE[attempt], account)

    assert any(answer in refused for answer in REFUSED), refused


@EVERYBODY
def test_the_predictor_cannot_be_scaled_to_zero(guarded: Kubectl, account: str) -> None:
    answer = guarded("scale", "deployment", "rewriter-predictor", "-n", NS, "--replicas=0", account=account)

    assert answer.code != 0 and "is made by KServe's and Knative's controllers" in answer.text, answer.text


@EVERYBODY
def test_a_running_pod_is_not_put_behind_it(guarded: Kubectl, account: str) -> None:
    name = guarded.a_pod(NS, "app.kubernetes.io/name=qinglan-rag")
    change = {"metadata": {"labels": {"app": "isvc.rewriter-predictor"}}}

    assert PODS in patched(guarded, "pod", name, change, account)


@EVERYBODY
def test_no_container_is_slipped_into_its_pod(guarded: Kubectl, account: str) -> None:
    name = guarded.a_pod(NS, f"{ISVC}=rewriter")
    answer = guarded(
        "debug", name, "-n", NS, f"--image={DIGEST}", "--profile=restricted", "--attach=false", account=account
    )

    assert answer.code != 0 and PODS in answer.text, answer.text


@EVERYBODY
def test_only_controllers_write_the_status_that_the_rollout_reads(guarded: Kubectl, account: str) -> None:
    lie = {"status": {"components": {"predictor": {"latestReadyRevision": "other"}}}}
    refused = patched(guarded, "isvc", "rewriter", lie, account, "status")
    assert "controllers from its InferenceService" in refused, refused

    done = {"status": {"phase": "Promote", "step": 3}}
    refused = patched(guarded, "modelrollout", "rewriter-1", done, account, "status")
    assert "only qinglan/qinglan-rollout writes down what rewriter-1 has come to" in refused, refused
    assert patched(guarded, "modelrollout", "rewriter-1", done, ROLLOUT, "status") == ""


@pytest.mark.parametrize("phase, refused", [
    ("Verify", False), ("Apply", True), ("WaitReady", True), ("Analyse", True), ("Promote", True), ("Rollback", True),
    ("Done", False),
])  # fmt: skip
def test_a_rollout_under_way_is_ended_before_it_is_taken_away(guarded: Kubectl, phase: str, refused: bool) -> None:
    guarded.must("patch", "modelrollout", "rewriter-1", "-n", NS, "--type=merge", "--subresource=status",
                 f"-p={json.dumps({'status': {'phase': phase}})}", account=ROLLOUT)  # fmt: skip
    answer = guarded("delete", "modelrollout", "rewriter-1", "-n", NS, "--dry-run=server", account=STRANGER)
    administrator = guarded("delete", "modelrollout", "rewriter-1", "-n", NS, "--dry-run=server")

    assert (answer.code != 0) == refused, answer.text
    assert not refused or (f"({phase})" in answer.text and "qinglan rollout abort rewriter-1" in answer.text)
    assert administrator.code == 0, "who may change the policies may take away what no controller can end"


def test_a_rollout_that_was_never_looked_at_may_go(guarded: Kubectl) -> None:
    guarded.must("create", "-f", "-", manifests=[rollout(NS, "rewriter-2")], account=STRANGER)

    assert guarded("delete", "modelrollout", "rewriter-2", "-n", NS, account=STRANGER).code == 0


def test_a_spec_does_not_come_in_by_the_way_of_the_status(guarded: Kubectl) -> None:
    """Not the controllers' either."""
    before = guarded.get("isvc", "rewriter", NS)["spec"]
    change = {"spec": {"predictor": {"model": {"storageUri": "s3://evil/model"}}}}
    guarded("patch", "isvc", "rewriter", "-n", NS, "--subresource=status", "--type=merge", f"-p={json.dumps(change)}",
            account="kserve/kserve-controller-manager")  # fmt: skip

    assert guarded.get("isvc", "rewriter", NS)["spec"] == before


def test_deleted_and_made_anew_is_another_way_that_is_closed(guarded: Kubectl) -> None:
    gone = guarded("delete", "isvc", "rewriter", "-n", NS, "--dry-run=server", account=STRANGER)
    assert gone.code != 0 and "takes rewriter away" in gone.text, gone.text

    again = isvc("second")
    again["spec"]["predictor"]["model"]["storageUri"] = f"s3://qinglan/fivedoctors/releases/{'9' * 64}"
    assert "only qinglan/qinglan-rollout may change what second serves" in guarded.try_to_create(again, STRANGER)
    assert guarded("delete", "isvc", "rewriter", "-n", NS, "--dry-run=server").code == 0, "an administrator may"


@pytest.mark.parametrize("kind, name", [("servingruntime", "qinglan-rewriter-vllm"), ("configmap", "qinglan-trust")])
def test_only_the_platform_changes_runtimes_and_trusted_keys(guarded: Kubectl, kind: str, name: str) -> None:
    if kind == "configmap":
        guarded.must("create", "configmap", name, "-n", NS, "--from-literal=trust.yaml=keys: {}")
    change: Object = {"data": {"trust.yaml": "keys: {evil: true}"}}
    if kind == "servingruntime":
        container = guarded.get(kind, name, NS)["spec"]["containers"][0]
        change = {"spec": {"containers": [{**container, "command": ["python", "-m", "evil"]}]}}

    refused = patched(guarded, kind, name, change, STRANGER)
    assert "is for who may change the cluster's admission policies" in refused, refused
    gone = guarded("delete", kind, name, "-n", NS, "--dry-run=server", account=STRANGER)
    assert gone.code != 0 and "is for who may change" in gone.text, gone.text
    for account in (ROLLOUT, f"{NS}/pipeline-runner", f"{NS}/qinglan-serving"):
        assert patched(guarded, kind, name, change, account) != ""
    assert patched(guarded, kind, name, change, "") == "", "whoever may change the policies may"


def test_other_config_maps_are_not_its_business(guarded: Kubectl) -> None:
    manifest = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "notes", "namespace": NS}, "data": {}}

    assert guarded.try_to_create(manifest, STRANGER) == ""


def may(kubectl: Kubectl, requests: list[Object], account: str) -> list[bool]:
    """As `kubectl auth can-i` asks."""
    review = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview"}
    reviews = [{**review, "spec": {"resourceAttributes": attributes}} for attributes in requests]
    return [bool(kubectl.server.create(attributes, account).body["status"]["allowed"]) for attributes in reviews]


EVERY_LABEL = pytest.mark.parametrize("label", ["qinglan.dev/guarded", "pod-security.kubernetes.io/enforce"])
ONCE = (
    "clusterstoragecontainers.serving.kserve.io/qinglan-release", "clusterservingruntimes.serving.kserve.io/any",
    "configmaps/inferenceservice-config", "namespaces/any", "customresourcedefinitions.apiextensions.k8s.io/any",
    "validatingadmissionpolicies.admissionregistration.k8s.io/qinglan-models-by-rollout",
    "validatingadmissionpolicybindings.admissionregistration.k8s.io/qinglan-models-by-rollout",
    "mutatingwebhookconfigurations.admissionregistration.k8s.io/any",
)  # fmt: skip


@pytest.mark.parametrize("account", [STRANGER, ROLLOUT, f"{NS}/pipeline-runner", f"{NS}/qinglan-serving"])
@pytest.mark.parametrize("what", ONCE)
def test_cluster_wide_objects_are_out_of_a_tenants_reach(guarded: Kubectl, what: str, account: str) -> None:
    """KServe's own settings and storage containers, the policies, and other namespaces."""
    kind, name = what.split("/")
    resource, _, group = kind.partition(".")
    requests = [
        {"group": group, "resource": resource, "name": name, "namespace": namespace, "verb": verb}
        for namespace in ("", "kserve")
        for verb in ("create", "update", "patch", "delete")
    ]
    assert may(guarded, requests, account) == [False] * len(requests)


@EVERY_LABEL
def test_no_account_of_a_namespace_takes_it_from_the_policies(guarded: Kubectl, label: str) -> None:
    """With the stranger's rights only it could: a right on everything in a namespace includes its labels."""
    change: Object = {"metadata": {"labels": {label: None}}}

    assert "would be changed by system:serviceaccount:qinglan:stranger" in guarded.try_to_patch(
        "namespace", NS, "", change, STRANGER
    )
    for account in (ROLLOUT, f"{NS}/pipeline-runner", f"{NS}/qinglan-serving"):
        assert "cannot patch resource" in guarded.try_to_patch("namespace", NS, "", change, account)


@pytest.mark.parametrize("verb, allowed", [("create", True), ("get", True), ("update", False), ("delete", False)])
def test_the_deploy_step_asks_for_a_rollout_and_changes_none(guarded: Kubectl, verb: str, allowed: bool) -> None:
    account = f"{NS}/pipeline-runner"
    can = guarded("auth", "can-i", verb, "modelrollouts.qinglan.dev", "-n", NS, account=account)

    assert (can.code == 0) is allowed
    for kind in ("inferenceservices.serving.kserve.io", "servingruntimes.serving.kserve.io"):
        assert guarded("auth", "can-i", "create", kind, "-n", NS, account=account).code != 0


def test_the_rollout_may_lead_and_tell_and_not_ask(guarded: Kubectl) -> None:
    def can(verb: str, kind: str) -> bool:
        return guarded("auth", "can-i", verb, kind, "-n", NS, account=ROLLOUT).code == 0

    assert can("create", "leases.coordination.k8s.io") and can("update", "leases.coordination.k8s.io/qinglan-rollout")
    assert not can("update", "leases.coordination.k8s.io/other")
    assert can("create", "events") and can("get", "modelrollouts.qinglan.dev")
    report = {"group": "", "resource": "events", "namespace": NS, "verb": "create"}
    assert may(guarded, [report, {**report, "verb": "delete"}], ROLLOUT) == [True, False], "both ways of asking agree"
    for verb in ("create", "update", "patch", "delete"):
        assert not can(verb, "modelrollouts.qinglan.dev"), verb
    assert not can("delete", "inferenceservices.serving.kserve.io")


def test_services_become_ready_with_every_policy_in_force(guarded: Kubectl) -> None:
    """The policies let the controllers do their work."""
    for name in ("rewriter", "serverless"):
        assert is_ready(guarded.get("isvc", name, NS))
