"""Who may do what in a tenant's namespace, as a table: a subject, an action, and the API server's expected answer.

Everything is tried on a real API server and nothing is made (dry run). Each subject has every right that its action
needs, so that a refusal comes from a policy. PIPELINE is the account of KFP's steps, with the rights of
manifests/base; STRANGER a person with every right in the namespace; ADMIN an administrator of the cluster; the others
are controllers.
"""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest

from tests.cluster.controller_rights import ARGO, controller_rights
from tests.cluster.kubectl import Kubectl
from tests.cluster.test_manifests_gateway import CLAIM, container, made, owned, secret_volume, template
from tests.cluster.test_manifests_policies import DIGEST, HARDENED, NS, STRANGER, house, pod
from tests.cluster.waiting import until
from tests.manifests.manifest_objects import Object

__all__ = ["house"]

ADMIN, PIPELINE = "", f"{NS}/pipeline-runner"
TRAINING = "kubeflow/training-operator"
KSERVE, KSERVE_IN_KUBEFLOW = "kserve/kserve-controller-manager", "kubeflow/kserve-controller-manager"
NOTEBOOKS = "kubeflow/notebook-controller"
REPLICA_SETS, JOBS, CRON_JOBS = (f"kube-system/{name}-controller" for name in ("replicaset", "job", "cronjob"))
STATEFUL_SETS, CLAIMS = "kube-system/statefulset-controller", "kube-system/ephemeral-volume-controller"
CLUSTER_WIDE = (ARGO, KSERVE_IN_KUBEFLOW, NOTEBOOKS)
"""Controllers that are not installed in the tests' cluster: they get the right that theirs have."""
NODE = "system:node:one"

ADMITTED = ""
PART = "what belongs to a part of Qinglan is for that part alone"
ACCOUNT = "a training job runs as the account `default`"
PLATFORM = "is for who may change the cluster's admission policies"
CONTROLLERS = "is made by KServe's and Knative's controllers"

GATEWAY, RAG, ROLLOUT = ("app.kubernetes.io/name=qinglan-" + name for name in ("gateway", "rag", "rollout"))
STORE = [{"name": "A", "valueFrom": {"secretKeyRef": {"name": "qinglan-store", "key": "AWS_ACCESS_KEY_ID"}}}]
EVIL = {"app.kubernetes.io/name": "evil"}

Action = Callable[[Kubectl, str], str]


class Row(NamedTuple):
    account: str
    what: str
    action: Action
    answer: str


def create(one: Object) -> Action:
    return lambda kubectl, account: kubectl.try_to_create(one, account)


def object_name(kubectl: Kubectl, kind: str, name: str) -> str:
    """The name; one with = is a label, and names the first object that has it."""
    return name if "=" not in name else str(kubectl.all(kind, NS, name)[0]["metadata"]["name"])


def patch(kind: str, name: str, change: Object, subresource: str = "") -> Action:
    def action(kubectl: Kubectl, account: str) -> str:
        target = object_name(kubectl, kind, name)
        return kubectl.try_to_patch(kind, target, NS, change, account, subresource, how="strategic-merge")

    return action


def merge(kind: str, name: str, change: Object) -> Action:
    return lambda kubectl, account: kubectl.try_to_patch(kind, name, NS, change, account)


def request(
    method: str, kind: str, name: str = "", subresource: str = "", body: Object | None = None, **query: str
) -> Action:
    def action(kubectl: Kubectl, account: str) -> str:
        target = object_name(kubectl, kind, name)
        path = kubectl.server.resource(kind).path(NS, target, subresource)
        return kubectl.server.request(method, path, body, account, query or {"dryRun": "All"}).refusal

    return action


def config_map(kubectl: Kubectl) -> str:
    """Name of the gateway's ConfigMap, which ends in the digest of its content."""
    names = [str(one["metadata"]["name"]) for one in kubectl.all("configmaps", NS)]
    return next(name for name in names if name.startswith("qinglan-gateway-"))


def settings(change: Object) -> Action:
    return lambda kubectl, account: kubectl.try_to_patch("configmap", config_map(kubectl), NS, change, account)


def job(template: Object, replica: str = "Master") -> Object:
    one = made("PyTorchJob", "training", template)
    replicas = one["spec"]["pytorchReplicaSpecs"]
    replicas[replica] = replicas.pop("Master")
    if replica != "Master":
        replicas["Master"] = made("PyTorchJob", "training", globals()["template"]())["spec"]["pytorchReplicaSpecs"][
            "Master"
        ]
    return one


def old_account(name: str) -> Object:
    """By the deprecated name of the field, which an API server fills in from for its own kinds only."""
    result = template()
    del result["spec"]["serviceAccountName"]
    result["spec"]["serviceAccount"] = name
    return result


def of(one: Object, kind: str, name: str, api: str = "apps/v1") -> Object:
    result = owned(one, kind, name)
    result["metadata"]["ownerReferences"][0]["apiVersion"] = api
    return result


def step(labels: Object | None = None, account: str = "pipeline-runner", **changes: Any) -> Object:
    """A pod as Argo makes it of a run's Workflow."""
    one = pod("run-1-impl", account=account, **changes)
    one["metadata"]["labels"] = {"workflows.argoproj.io/workflow": "run-1", **(labels or {})}
    return of(one, "Workflow", "run-1", "argoproj.io/v1alpha1")


def trained(labels: Object | None = None, **changes: Any) -> Object:
    """A pod as training-operator makes it of a PyTorchJob."""
    one = pod("training-master-0", **changes)
    one["metadata"]["labels"] = {"training.kubeflow.org/job-name": "training", **(labels or {})}
    return of(one, "PyTorchJob", "training", "kubeflow.org/v1")


def janitor(name: str, maker: str) -> Object:
    one = pod(name, account="qinglan-janitor", restartPolicy="Never")
    one["metadata"]["labels"] = {"app.kubernetes.io/name": "qinglan-janitor"}
    return of(one, "Job", maker, "batch/v1")


MODEL = {"serving.kserve.io/inferenceservice": "rewriter", "app": "isvc.rewriter-predictor"}


def model(maker: str, name: str) -> Object:
    one = made("Deployment", "other-predictor", template(MODEL, account="qinglan-serving"))
    return of(one, maker, name, "serving.kserve.io/v1beta1")


def thing(kind: str, name: str, api: str = "v1", labels: Object | None = None, **fields: Any) -> Object:
    meta = {"name": name, "namespace": NS, **({"labels": labels} if labels else {})}
    return {"apiVersion": api, "kind": kind, "metadata": meta, **fields}


def claim(name: str, **spec: Any) -> Object:
    resources = {"requests": {"storage": "1Gi"}}
    return thing(
        "PersistentVolumeClaim", name, spec={"accessModes": ["ReadWriteOnce"], "resources": resources, **spec}
    )


def token_secret(account: str) -> Object:
    one = thing("Secret", "mine", type="kubernetes.io/service-account-token")
    one["metadata"]["annotations"] = {"kubernetes.io/service-account.name": account}
    return one


JOURNAL = {"kind": "PersistentVolumeClaim", "name": "qinglan-journal"}
SERVICE: Object = {"ports": [{"port": 80}], "selector": EVIL}
TOKEN: Object = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 600}}
BINDING: Object = {"apiVersion": "v1", "kind": "Binding", "target": {"kind": "Node", "name": "none"}}
EXTRA: Object = {"spec": {"ephemeralContainers": [
    {"name": "thief", "image": DIGEST, "securityContext": HARDENED, "env": STORE}]}}  # fmt: skip
PLAIN: Object = {
    "spec": {"ephemeralContainers": [{"name": "debugger", "image": DIGEST, "securityContext": HARDENED}]}
}
COMMAND: Object = {"spec": {"template": {"spec": {"containers": [{"name": "rag", "command": ["env"]}]}}}}
ROLLOUT_COMMAND: Object = {"spec": {"template": {"spec": {"containers": [{"name": "rollout", "command": ["env"]}]}}}}

ROWS = [
    # A step starts a training job.
    Row(PIPELINE, "a training with the store's key",
        create(job(template(containers=container(env=STORE)))), ADMITTED),
    Row(PIPELINE, "a training as the rollout", create(job(template(account="qinglan-rollout"))), PART),
    Row(PIPELINE, "... by the field's old name", create(job(old_account("qinglan-rollout"))), PART),
    Row(PIPELINE, "... of a worker", create(job(template(account="qinglan-rollout"), "Worker")), PART),
    Row(PIPELINE, "a training as the step itself", create(job(template(account="pipeline-runner"))), PART),
    Row(PIPELINE, "a training as a model", create(job(template(account="qinglan-serving"))), PART),
    Row(PIPELINE, "a training as Kubeflow's editor", create(job(template(account="default-editor"))), ACCOUNT),
    Row(PIPELINE, "... by the field's old name", create(job(old_account("default-editor"))), ACCOUNT),
    Row(PIPELINE, "a training with the release key",
        create(job(template(volumes=secret_volume("qinglan-release-keys")))), PART),
    Row(PIPELINE, "a training with the builder's key",
        create(job(template(volumes=secret_volume("qinglan-builder-key")))), PART),
    Row(PIPELINE, "a training with the rollout's key",
        create(job(template(volumes=secret_volume("qinglan-rollout-key")))), PART),
    Row(PIPELINE, "a training with the paid key", create(job(template(
        containers=container(envFrom=[{"secretRef": {"name": "qinglan-paid-api"}}])))), PART),
    Row(PIPELINE, "a training with users' words",
        create(job(template(volumes=secret_volume("qinglan-payloads")))), PART),
    Row(PIPELINE, "a training with the journal", create(job(template(volumes=[CLAIM]))), PART),
    Row(PIPELINE, "a training with the rollout's way to the API server", create(job(template(
        {"app.kubernetes.io/name": "qinglan-rollout"}))), PART),
    Row(PIPELINE, "a training with a step's ways",
        create(job(template({"workflows.argoproj.io/workflow": "a"}))), PART),
    Row(PIPELINE, "a training that answers for the model", create(job(template(MODEL))), PART),
    # Who may start a run has its steps made by Argo.
    Row(ARGO, "a step with release and builder's key", create(step(volumes=[
        *secret_volume("qinglan-release-keys"), {"name": "b", "secret": {"secretName": "qinglan-builder-key"}}])),
        ADMITTED),
    Row(ARGO, "a step as the rollout", create(step(account="qinglan-rollout")), PART),
    Row(ARGO, "a step as the gateway", create(step(account="qinglan-gateway")), PART),
    Row(ARGO, "a step with the rollout's key", create(step(volumes=secret_volume("qinglan-rollout-key"))), PART),
    Row(ARGO, "a step with the paid key", create(step(containers=container(
        envFrom=[{"secretRef": {"name": "qinglan-paid-api"}}]))), PART),
    Row(ARGO, "a step with the journal", create(step(volumes=[CLAIM])), PART),
    Row(ARGO, "a step with the gateway's way out", create(step({"app.kubernetes.io/name": "qinglan-gateway"})), PART),
    Row(ARGO, "a step that answers for the model", create(step(MODEL)), PART),
    Row(ARGO, "a step's pod for something else", create(of(step(), "CronWorkflow", "run-1")), PART),
    Row(STRANGER, "a step's pod that names a Workflow", create(step()), PART),
    Row(STRANGER, "a pod of the rollout's ReplicaSet", create(of(
        pod("qinglan-rollout-5d8f7-1", account="qinglan-rollout"), "ReplicaSet", "qinglan-rollout-5d8f7")), PART),
    # What controllers make, they make for its owner.
    Row(TRAINING, "a pod of a training", create(trained(containers=container(env=STORE))), ADMITTED),
    Row(TRAINING, "... as the rollout", create(trained(account="qinglan-rollout")), PART),
    Row(TRAINING, "... as Kubeflow's editor", create(trained(account="default-editor")), ACCOUNT),
    Row(TRAINING, "... with the release key", create(trained(volumes=secret_volume("qinglan-release-keys"))), PART),
    Row(TRAINING, "... that answers for the model", create(trained(MODEL)), PART),
    Row(STRANGER, "a pod that names a training", create(trained()), PART),
    Row(REPLICA_SETS, "the rollout's pod", create(of(
        pod("one", account="qinglan-rollout"), "ReplicaSet", "qinglan-rollout-5d8f7")), ADMITTED),
    Row(REPLICA_SETS, "the rollout's pod for the RAG service", create(of(
        pod("one", account="qinglan-rollout"), "ReplicaSet", "qinglan-rag-5d8f7")), PART),
    Row(REPLICA_SETS, "the rollout's pod for a Deployment of a longer name", create(of(
        pod("one", account="qinglan-rollout"), "ReplicaSet", "qinglan-rollout-x-5d8f7")), PART),
    Row(JOBS, "the janitor's pod", create(janitor("one", "qinglan-janitor-29384")), ADMITTED),
    Row(JOBS, "the janitor's pod for another Job", create(janitor("one", "thief-29384")), PART),
    Row(JOBS, "the rollout's pod for a Job of its name", create(of(
        pod("one", account="qinglan-rollout", restartPolicy="Never"), "Job", "qinglan-rollout-5d8f7", "batch/v1")),
        PART),
    Row(CRON_JOBS, "the janitor's Job", create(of(
        made("Job", "one", template(account="qinglan-janitor")), "CronJob", "qinglan-janitor", "batch/v1")),
        ADMITTED),
    Row(CRON_JOBS, "the janitor's Job for another CronJob", create(of(
        made("Job", "one", template(account="qinglan-janitor")), "CronJob", "thief", "batch/v1")), PART),
    Row(STATEFUL_SETS, "the rollout's pod for a StatefulSet of its name", create(of(
        pod("qinglan-rollout-0", account="qinglan-rollout"), "StatefulSet", "qinglan-rollout")), PART),
    Row(KSERVE, "a model's Deployment", create(model("InferenceService", "other")), ADMITTED),
    Row(KSERVE_IN_KUBEFLOW, "a model's Deployment, as Kubeflow installs KServe",
        create(model("InferenceService", "other")), ADMITTED),
    Row(KSERVE, "a model's Deployment for another kind of KServe's",
        create(model("LLMInferenceService", "other")), PART),
    Row(STRANGER, "a model's Deployment", create(model("InferenceService", "other")), PART),
    Row(NOTEBOOKS, "a notebook as the rollout",
        create(made("StatefulSet", "one", template(account="qinglan-rollout"))), PART),
    # A pod that runs takes a label or a container.
    Row(STRANGER, "the rollout's label by the pod", patch("pod", "bystander", {"metadata": {"labels": {
        "app.kubernetes.io/name": "qinglan-rollout"}}}), PART),
    Row(STRANGER, "the gateway's label by the pod's status", patch("pod", "bystander", {"metadata": {"labels": {
        "app.kubernetes.io/name": "qinglan-gateway"}}}, "status"), PART),
    Row(STRANGER, "the model's label by the pod's status",
        patch("pod", "bystander", {"metadata": {"labels": MODEL}}, "status"), PART),
    Row(STRANGER, "the model's label on the RAG service's pod",
        patch("pod", RAG, {"metadata": {"labels": MODEL}}, "status"), PART),
    Row(STRANGER, "a label by the pod's status",
        patch("pod", RAG, {"metadata": {"labels": {"team": "a"}}}, "status"), ADMITTED),
    Row(STRANGER, "the gateway's label by a binding", request("POST", "pod", "none", "binding", {
        **BINDING, "metadata": {"name": "none", "labels": {"app.kubernetes.io/name": "qinglan-gateway"}}}), PART),
    Row(STRANGER, "a container with the store's key", patch("pod", "bystander", EXTRA, "ephemeralcontainers"), PART),
    Row(ADMIN, "a container with the store's key", patch("pod", "bystander", EXTRA, "ephemeralcontainers"), PART),
    Row(STRANGER, "any container in the RAG service's pod", patch("pod", RAG, PLAIN, "ephemeralcontainers"), PART),
    Row(STRANGER, "a container in a pod of its own",
        patch("pod", "bystander", PLAIN, "ephemeralcontainers"), ADMITTED),
    Row(STRANGER, "a shell in the gateway",
        request("GET", "pod", GATEWAY, "exec", command="env", stdout="1"), PLATFORM),
    Row(STRANGER, "a shell in the rollout",
        request("POST", "pod", ROLLOUT, "exec", command="env", stdout="1"), PLATFORM),
    Row(STRANGER, "the rollout's terminal", request("GET", "pod", ROLLOUT, "attach", stdout="1"), PLATFORM),
    # Deployments of ours.
    Row(STRANGER, "the RAG service's command", patch("deployment", "qinglan-rag", COMMAND), PART),
    Row(PIPELINE, "the RAG service's command", patch("deployment", "qinglan-rag", COMMAND), "cannot patch"),
    Row(ADMIN, "the RAG service's command", patch("deployment", "qinglan-rag", COMMAND), ADMITTED),
    Row(STRANGER, "the rollout's command", patch("deployment", "qinglan-rollout", ROLLOUT_COMMAND), PART),
    Row(STRANGER, "the RAG service's replicas", merge("deployment", "qinglan-rag", {"spec": {"replicas": 0}}), PART),
    Row(STRANGER, "the janitor's schedule",
        merge("cronjob", "qinglan-janitor", {"spec": {"schedule": "0 0 * * *"}}), PART),
    Row(STRANGER, "a note on the rollout",
        merge("deployment", "qinglan-rollout", {"metadata": {"annotations": {"a": "b"}}}), ADMITTED),
    # Settings, addresses, keys and accounts.
    Row(STRANGER, "the gateway's models",
        settings({"data": {"gateway.yaml": "teacher: {base_url: https://evil.example}"}}), PLATFORM),
    Row(STRANGER, "whom the gateway may ask", settings({"data": {"allowed-hosts": "evil.example"}}), PLATFORM),
    Row(ADMIN, "whom the gateway may ask", settings({"data": {"allowed-hosts": "api.example"}}), ADMITTED),
    Row(STRANGER, "other settings of the gateway",
        create(thing("ConfigMap", "qinglan-gateway-new", data={})), PLATFORM),
    Row(STRANGER, "whom steps may ask",
        create(thing("ConfigMap", "qinglan-allowed-hosts", data={"hosts": "evil"})), PLATFORM),
    Row(STRANGER, "whose certificates the gateway trusts",
        create(thing("ConfigMap", "company-ca", data={})), PLATFORM),
    Row(STRANGER, "all ConfigMaps at once", request("DELETE", "configmap"), PLATFORM),
    Row(STRANGER, "a ConfigMap of its own", create(thing("ConfigMap", "notes", data={})), ADMITTED),
    Row(STRANGER, "where the gateway is asked",
        merge("service", "qinglan-gateway", {"spec": {"selector": EVIL}}), PLATFORM),
    Row(STRANGER, "the gateway outside of the cluster", merge("service", "qinglan-gateway", {
        "spec": {"type": "ExternalName", "externalName": "evil.example"}}), PLATFORM),
    Row(STRANGER, "where the RAG service is asked",
        merge("service", "qinglan-rag", {"spec": {"selector": EVIL}}), PLATFORM),
    Row(STRANGER, "the gateway's Service gone", request("DELETE", "service", "qinglan-gateway"), PLATFORM),
    Row(NOTEBOOKS, "a notebook of the gateway's name",
        merge("service", "qinglan-gateway", {"spec": {"selector": EVIL}}), PLATFORM),
    Row(ADMIN, "where the gateway is asked",
        merge("service", "qinglan-gateway", {"spec": {"selector": EVIL}}), ADMITTED),
    Row(STRANGER, "measurements in the shadow's name", create(thing(
        "Service", "mine", labels={"app.kubernetes.io/name": "qinglan-shadow"}, spec=SERVICE)), PLATFORM),
    Row(STRANGER, "a Service of its own", create(thing("Service", "mine", spec=SERVICE)), ADMITTED),
    Row(STRANGER, "another paid key",
        merge("secret", "qinglan-paid-api", {"stringData": {"HTTPS_PROXY": "http://evil"}}), PLATFORM),
    Row(STRANGER, "a release key",
        create(thing("Secret", "qinglan-release-keys", stringData={"a.pem": "b"})), PLATFORM),
    Row(STRANGER, "the store's key gone", request("DELETE", "secret", "qinglan-store"), PLATFORM),
    Row(STRANGER, "a Secret of its own", create(thing("Secret", "mine", stringData={"a": "b"})), ADMITTED),
    Row(STRANGER, "a token of the rollout's in a Secret", create(token_secret("qinglan-rollout")), PLATFORM),
    Row(STRANGER, "a token of the steps' in a Secret", create(token_secret("pipeline-runner")), PLATFORM),
    Row(STRANGER, "a token of default's in a Secret", create(token_secret("default")), ADMITTED),
    Row(STRANGER, "a token of the rollout's",
        request("POST", "serviceaccount", "qinglan-rollout", "token", TOKEN), PLATFORM),
    Row(STRANGER, "a token of the steps'",
        request("POST", "serviceaccount", "pipeline-runner", "token", TOKEN), PLATFORM),
    Row(STRANGER, "a token of default's", request("POST", "serviceaccount", "default", "token", TOKEN), ADMITTED),
    Row(STRANGER, "which store models are fetched from",
        merge("serviceaccount", "qinglan-serving", {"secrets": [{"name": "mine"}]}), PLATFORM),
    # Volumes.
    Row(STRANGER, "a copy of the journal", create(claim("mine", dataSource=JOURNAL)), PLATFORM),
    Row(STRANGER, "a copy of the journal by reference", create(claim("mine", dataSourceRef=JOURNAL)), PLATFORM),
    Row(CLAIMS, "a copy of the journal for a pod", create(claim("mine-one", dataSource=JOURNAL)), PLATFORM),
    Row(ADMIN, "a copy of the journal", create(claim("mine", dataSource=JOURNAL)), ADMITTED),
    Row(STRANGER, "the journal gone", request("DELETE", "persistentvolumeclaim", "qinglan-journal"), PLATFORM),
    Row(STRANGER, "a volume of its own", create(claim("mine")), ADMITTED),
    # Ways through the network, and measurements.
    Row(STRANGER, "a way out for everybody", create(thing(
        "NetworkPolicy", "open", "networking.k8s.io/v1", spec={"podSelector": {}, "egress": [{}]})), PLATFORM),
    Row(STRANGER, "the walls gone", request("DELETE", "networkpolicy", "default-deny"), PLATFORM),
    Row(STRANGER, "a model's route in Knative's network", create(thing(
        "Ingress", "mine", "networking.internal.knative.dev/v1alpha1", spec={})), CONTROLLERS),
    Row(STRANGER, "measurements of its own", create(thing("ServiceMonitor", "mine", "monitoring.coreos.com/v1", spec={
        "selector": {"matchLabels": EVIL}, "endpoints": [{"port": "http"}]})), PLATFORM),
    Row(STRANGER, "all measurements gone", request("DELETE", "servicemonitor"), PLATFORM),
]  # fmt: skip


@pytest.fixture(scope="module")
def guarded(house: Kubectl) -> Iterator[Kubectl]:
    """With the rights that installations give to controllers that are not installed here."""
    editor = thing("ServiceAccount", "default-editor")
    house.must("apply", "-f", "-", given=[editor])
    with controller_rights(house, *CLUSTER_WIDE, NODE):
        until(lambda: house.try_to_create(step(), ARGO) == "", "Argo's rights are known")
        for label in (GATEWAY, RAG, ROLLOUT):
            house.a_pod(NS, label)
        yield house
    house.must("delete", "-f", "-", given=[editor])


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.account or 'administrator'}: {row.what}")
def test_the_api_server_answers_as_the_table_says(guarded: Kubectl, row: Row) -> None:
    said = row.action(guarded, row.account)

    assert (row.answer in said) if row.answer else said == "", said


def test_a_nodes_kubelet_gets_the_token_of_a_pod_that_it_runs(guarded: Kubectl) -> None:
    words = ["create", "token", "qinglan-rollout", "-n", NS]

    assert guarded(*words, f"--as={NODE}").code == 0
    assert PLATFORM in guarded(*words, account=STRANGER).text
