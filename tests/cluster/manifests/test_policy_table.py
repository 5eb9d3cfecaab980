"""Rights in a tenant's namespace as a table: a subject, an action, and the API server's expected answer.

Everything is tried on a real API server and nothing is made (dry run). Each subject has every right that its action
needs, so that a refusal comes from a policy. PIPELINE is the account of KFP's steps, with the rights of
manifests/base; STRANGER a person with every right in the namespace, OWNER and EDITOR people with Kubernetes' own
`admin` and `edit`; ADMIN an administrator of the cluster; the others are controllers.
"""

from collections.abc import Iterator

import pytest

from tests.cluster.kubectl import Kubectl
from tests.cluster.manifests.controller_rights import ARGO, controller_rights
from tests.cluster.manifests.policy_actions import (
    ACCOUNT,
    ADMIN,
    ADMITTED,
    AUTOSCALER,
    BINDING,
    CLAIMS,
    CLUSTER_WIDE,
    COMMAND,
    CONTROLLERS,
    CRON_JOBS,
    DEPLOYMENTS,
    DONE,
    DRAINER,
    EDITOR,
    EVIL,
    EXTERNAL,
    EXTRA,
    GARBAGE,
    GATEWAY,
    JOBS,
    JOURNAL,
    KSERVE,
    KSERVE_IN_KUBEFLOW,
    LEASE,
    MARKS,
    MODEL,
    NAMESPACE,
    NAMESPACES,
    NO_OWNER,
    NODE,
    NOTEBOOKS,
    ORPHAN,
    OWNER,
    OWNERS,
    PART,
    PIPELINE,
    PLAIN,
    PLATFORM,
    POD_DEFAULT,
    PREDICTOR,
    PROFILES,
    RAG,
    REPLICA_SETS,
    ROLLOUT,
    ROLLOUT_COMMAND,
    SERVICE,
    STATEFUL_SETS,
    STEP,
    STORE,
    TOKEN,
    TRAINING,
    UPGRADE,
    Row,
    autoscaler,
    claim,
    connect,
    crd,
    create,
    delete,
    evict,
    ingress,
    janitor,
    job,
    merge,
    model,
    namespace,
    of,
    of_namespace,
    old_account,
    orphan,
    patch,
    people,
    put,
    request,
    scale,
    settings,
    step,
    thing,
    token_secret,
    trained,
    with_owner,
)
from tests.cluster.manifests.test_manifests_gateway import CLAIM, container, secret_volume, template, workload
from tests.cluster.manifests.test_manifests_policies import NS, STRANGER, house, pod
from tests.cluster.manifests.test_manifests_policies import ROLLOUT as ROLLOUT_ACCOUNT
from tests.cluster.rollout.test_modelrollout import rollout
from tests.cluster.waiting import until

__all__ = ["house"]

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
        workload("Job", "one", template(account="qinglan-janitor")), "CronJob", "qinglan-janitor", "batch/v1")),
        ADMITTED),
    Row(CRON_JOBS, "the janitor's Job for another CronJob", create(of(
        workload("Job", "one", template(account="qinglan-janitor")), "CronJob", "thief", "batch/v1")), PART),
    Row(STATEFUL_SETS, "the rollout's pod for a StatefulSet of its name", create(of(
        pod("qinglan-rollout-0", account="qinglan-rollout"), "StatefulSet", "qinglan-rollout")), PART),
    Row(KSERVE, "a model's Deployment", create(model("InferenceService", "other")), ADMITTED),
    Row(KSERVE_IN_KUBEFLOW, "a model's Deployment, as Kubeflow installs KServe",
        create(model("InferenceService", "other")), ADMITTED),
    Row(KSERVE, "a model's Deployment for another kind of KServe's",
        create(model("LLMInferenceService", "other")), PART),
    Row(STRANGER, "a model's Deployment", create(model("InferenceService", "other")), PART),
    Row(NOTEBOOKS, "a notebook as the rollout",
        create(workload("StatefulSet", "one", template(account="qinglan-rollout"))), PART),
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
    # A namespace's labels decide which policies hold there, and whom its network lets through.
    Row(STRANGER, "the policies off", of_namespace({"metadata": {"labels": {"qinglan.dev/guarded": None}}}), MARKS),
    Row(STRANGER, "... by another value",
        of_namespace({"metadata": {"labels": {"qinglan.dev/guarded": "no"}}}), MARKS),
    Row(STRANGER, "... by the namespace's status",
        of_namespace({"metadata": {"labels": {"qinglan.dev/guarded": None}}}, "status"), MARKS),
    Row(STRANGER, "... by its end", put("namespace", NS, {"metadata": {"labels": {}}}, "finalize"), MARKS),
    Row(STRANGER, "images by tag", of_namespace({"metadata": {"labels": {"qinglan.dev/images": None}}}), MARKS),
    Row(STRANGER, "one more image by tag",
        of_namespace({"metadata": {"annotations": {"qinglan.dev/images-by-tag": "evil:latest"}}}), MARKS),
    Row(STRANGER, "privileged pods",
        of_namespace({"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "privileged"}}}), MARKS),
    Row(STRANGER, "its own store", of_namespace({"metadata": {"labels": {"qinglan.dev/store": "true"}}}), MARKS),
    Row(STRANGER, "its own clients", of_namespace({"metadata": {"labels": {"qinglan.dev/clients": "true"}}}), MARKS),
    Row(STRANGER, "KServe's webhook off", of_namespace({"metadata": {"labels": {"control-plane": "x"}}}), NAMESPACE),
    Row(STRANGER, "an owner of the namespace", of_namespace(ORPHAN), NAMESPACE),
    Row(STRANGER, "the namespace's end", put("namespace", NS, {}, "finalize"), NAMESPACE),
    Row(STRANGER, "the namespace gone", delete("namespace", NS), NAMESPACE),
    Row(OWNER, "the policies off",
        of_namespace({"metadata": {"labels": {"qinglan.dev/guarded": None}}}), "cannot patch"),
    Row(NOTEBOOKS, "the policies off", of_namespace({"metadata": {"labels": {"qinglan.dev/guarded": None}}}), MARKS),
    Row(NOTEBOOKS, "another namespace as the store",
        of_namespace({"metadata": {"labels": {"qinglan.dev/store": "true"}}}, name="default"), MARKS),
    Row(NOTEBOOKS, "a namespace of clients", create(namespace({"qinglan.dev/clients": "true"})), MARKS),
    Row(NOTEBOOKS, "a namespace", create(namespace({"team": "a"})), ADMITTED),
    Row(NOTEBOOKS, "a label of another namespace",
        of_namespace({"metadata": {"labels": {"team": "a"}}}, name="default"), ADMITTED),
    Row(NOTEBOOKS, "a note on the namespace", of_namespace({"metadata": {"annotations": {"a": "b"}}}), ADMITTED),
    Row(NAMESPACES, "the namespace's end", put("namespace", NS, {}, "finalize"), ADMITTED),
    Row(GARBAGE, "the namespace of a profile that is gone", delete("namespace", NS), ADMITTED),
    Row(ADMIN, "the policies off", of_namespace({"metadata": {"labels": {"qinglan.dev/guarded": None}}}), ADMITTED),
    Row(ADMIN, "the store's namespace",
        of_namespace({"metadata": {"labels": {"qinglan.dev/store": "true"}}}, name="default"), ADMITTED),
    Row(ADMIN, "the namespace gone", delete("namespace", NS), ADMITTED),
    # The garbage collector deletes what has an owner that does not exist.
    Row(STRANGER, "an owner of the model", orphan("isvc", "rewriter"), OWNERS),
    Row(EDITOR, "an owner of the model", orphan("isvc", "rewriter"), "cannot patch"),
    Row(KSERVE, "an owner of the model", orphan("isvc", "rewriter"), OWNERS),
    Row(KSERVE, "the model's finalizer",
        merge("isvc", "rewriter", {"metadata": {"finalizers": ["inferenceservice.finalizers"]}}), ADMITTED),
    Row(STRANGER, "a note on the model", merge("isvc", "rewriter", {"metadata": {"labels": {"a": "b"}}}), ADMITTED),
    Row(ROLLOUT_ACCOUNT, "the model's owner", orphan("isvc", "rewriter"), ADMITTED),
    Row(GARBAGE, "the model's owner", orphan("isvc", "rewriter", []), ADMITTED),
    Row(ADMIN, "the model gone", delete("isvc", "rewriter"), ADMITTED),
    Row(STRANGER, "an owner of a rollout under way", orphan("modelrollouts", "rewriter-1"), NO_OWNER),
    Row(PIPELINE, "a rollout with an owner", create(with_owner(rollout(NS, "rewriter-2"))), NO_OWNER),
    Row(STRANGER, "a rollout with an owner", create(with_owner(rollout(NS, "rewriter-2"))), NO_OWNER),
    Row(PIPELINE, "a rollout", create(rollout(NS, "rewriter-2")), ADMITTED),
    Row(STRANGER, "a rollout's pause", merge("modelrollouts", "rewriter-1", {"spec": {"paused": True}}), ADMITTED),
    Row(ROLLOUT_ACCOUNT, "how a rollout ended",
        merge("modelrollouts", "rewriter-1", DONE, "status"), ADMITTED),
    Row(GARBAGE, "a rollout's owner", orphan("modelrollouts", "rewriter-1"), ADMITTED),
    Row(STRANGER, "an owner of the rollout's Deployment", orphan("deployment", "qinglan-rollout"), PART),
    Row(EDITOR, "an owner of the rollout's Deployment", orphan("deployment", "qinglan-rollout"), PART),
    Row(EDITOR, "an owner of the gateway's ReplicaSet", orphan("replicaset", GATEWAY), PART),
    Row(EDITOR, "an owner of the gateway's pod", orphan("pod", GATEWAY), PART),
    Row(EDITOR, "an owner of the janitor", orphan("cronjob", "qinglan-janitor"), PART),
    Row(EDITOR, "an owner of the model's Deployment", orphan("deployment", "rewriter-predictor"), PART),
    Row(EDITOR, "an owner of the model's Service", orphan("service", "rewriter-predictor"), CONTROLLERS),
    Row(EDITOR, "an owner of the journal", orphan("persistentvolumeclaim", "qinglan-journal"), PLATFORM),
    Row(EDITOR, "an owner of a Deployment of its own", orphan("deployment", "own"), ADMITTED),
    Row(GARBAGE, "a ReplicaSet whose Deployment went without it", orphan("replicaset", GATEWAY, []), ADMITTED),
    Row(ADMIN, "an owner of the rollout's Deployment", orphan("deployment", "qinglan-rollout"), ADMITTED),
    # Deployments of ours run, as many of them as the platform says.
    Row(EDITOR, "the rollout at rest", scale("qinglan-rollout"), PLATFORM),
    Row(STRANGER, "the RAG service at rest", scale("qinglan-rag"), PLATFORM),
    Row(EDITOR, "five gateways with a budget each", scale("qinglan-gateway", 5), PLATFORM),
    Row(EDITOR, "the gateway at rest by its ReplicaSet", scale(GATEWAY, kind="replicaset"), PLATFORM),
    Row(EDITOR, "a Deployment of its own at rest", scale("own"), ADMITTED),
    Row(ADMIN, "the RAG service twice", scale("qinglan-rag", 2), ADMITTED),
    Row(AUTOSCALER, "the RAG service twice",
        put("deployment", "qinglan-rag", {"spec": {"replicas": 2}}, "scale"), ADMITTED),
    Row(EDITOR, "an autoscaler of the gateway", create(autoscaler("mine", "qinglan-gateway")), PLATFORM),
    Row(EDITOR, "an autoscaler of the model", create(autoscaler("mine", "rewriter-predictor")), CONTROLLERS),
    Row(EDITOR, "an autoscaler of its own", create(autoscaler("mine", "own")), ADMITTED),
    Row(KSERVE, "an autoscaler of a model", create(autoscaler("other-predictor", "other-predictor")), ADMITTED),
    Row(ADMIN, "an autoscaler of the RAG service", create(autoscaler("mine", "qinglan-rag")), ADMITTED),
    Row(EDITOR, "the rollout gone", delete("deployment", "qinglan-rollout"), PLATFORM),
    Row(STRANGER, "the gateway gone", delete("deployment", "qinglan-gateway"), PLATFORM),
    Row(STRANGER, "all Deployments at once", delete("deployment"), "denied request"),
    Row(EDITOR, "the gateway's ReplicaSet gone", delete("replicaset", GATEWAY), PLATFORM),
    Row(EDITOR, "the janitor gone", delete("cronjob", "qinglan-janitor"), PLATFORM),
    Row(EDITOR, "the gateway's pod gone", delete("pod", GATEWAY), PLATFORM),
    Row(EDITOR, "the rollout's pod evicted", evict(ROLLOUT), PLATFORM),
    Row(EDITOR, "a Deployment of its own gone", delete("deployment", "own"), ADMITTED),
    Row(EDITOR, "a pod of its own gone", delete("pod", "bystander"), ADMITTED),
    Row(EDITOR, "a step's pod gone", delete("pod", STEP), ADMITTED),
    Row(DEPLOYMENTS, "an old ReplicaSet gone", delete("replicaset", GATEWAY), ADMITTED),
    Row(REPLICA_SETS, "a pod too many gone", delete("pod", GATEWAY), ADMITTED),
    Row(NAMESPACES, "the namespace's Deployments gone", delete("deployment"), ADMITTED),
    Row(NAMESPACES, "the namespace's pods gone", delete("pod"), ADMITTED),
    Row(NODE, "a pod that has ended", delete("pod", GATEWAY), ADMITTED),
    Row(DRAINER, "the gateway evicted", evict(GATEWAY), ADMITTED),
    Row(DRAINER, "the model evicted", evict(PREDICTOR), ADMITTED),
    Row(ADMIN, "the gateway gone", delete("deployment", "qinglan-gateway"), ADMITTED),
    Row(EDITOR, "the rollout's lease", create(LEASE), PLATFORM),
    Row(STRANGER, "the rollout's lease gone", delete("lease", "qinglan-rollout"), PLATFORM),
    Row(STRANGER, "another holder of the rollout's lease",
        merge("lease", "qinglan-rollout", {"spec": {"holderIdentity": "evil"}}), PLATFORM),
    Row(EDITOR, "a lease of its own", create({**LEASE, "metadata": {"name": "mine", "namespace": NS}}), ADMITTED),
    Row(ROLLOUT_ACCOUNT, "its lease",
        put("lease", "qinglan-rollout", {"spec": {"renewTime": "2026-01-01T00:00:00.000000Z"}}), ADMITTED),
    Row(OWNER, "the rollout without rights", delete("rolebinding", "qinglan-rollout"), PLATFORM),
    Row(OWNER, "more rights of the steps", merge("role", "pipeline-runner", {"rules": []}), PLATFORM),
    Row(OWNER, "a role of its own",
        create(thing("Role", "mine", "rbac.authorization.k8s.io/v1", rules=[])), ADMITTED),
    Row(STRANGER, "no quota", delete("resourcequota", "qinglan"), PLATFORM),
    Row(STRANGER, "no limits of containers", delete("limitrange", "qinglan"), PLATFORM),
    # A way to a pod of ours through the API server, which no NetworkPolicy sees.
    Row(EDITOR, "a port of the gateway", connect("pod", GATEWAY, "portforward", ports="8300"), PLATFORM),
    Row(EDITOR, "the gateway's pod by a proxy", connect("pod", GATEWAY, "proxy"), PLATFORM),
    Row(EDITOR, "the gateway by a proxy", connect("service", "qinglan-gateway:8300", "proxy"), PLATFORM),
    Row(EDITOR, "... with a scheme", connect("service", "http:qinglan-gateway:8300", "proxy"), PLATFORM),
    Row(EDITOR, "the model by a proxy", connect("service", "rewriter-predictor:80", "proxy"), PLATFORM),
    Row(EDITOR, "a port of the model", connect("pod", PREDICTOR, "portforward", ports="8080"), PLATFORM),
    Row(EDITOR, "a shell in the model", connect("pod", PREDICTOR, "exec", command="env", stdout="1"), PLATFORM),
    Row(EDITOR, "a shell in a step",
        connect("pod", STEP, "exec", command="env", stdout="1"), PLATFORM),
    Row(ARGO, "the end of a step",
        connect("pod", STEP, "exec", command="kill", stdout="1"), UPGRADE),
    Row(EDITOR, "a port of a pod of its own", connect("pod", "bystander", "portforward", ports="80"), UPGRADE),
    Row(ADMIN, "a port of the gateway", connect("pod", GATEWAY, "portforward", ports="8300"), UPGRADE),
    # A name alone makes nothing a part.
    Row(EDITOR, "a ReplicaSet of the gateway's name",
        create(workload("ReplicaSet", "qinglan-gateway-abc", template())), PART),
    Row(STRANGER, "a ReplicaSet of the gateway's name",
        create(workload("ReplicaSet", "qinglan-gateway-abc", template())), PART),
    Row(STRANGER, "... that names its Deployment",
        create(of(workload("ReplicaSet", "qinglan-gateway-abc", template()), "Deployment", "qinglan-gateway")), PART),
    Row(EDITOR, "a Job of the janitor's name", create(workload("Job", "qinglan-janitor-123", template())), PART),
    Row(EDITOR, "the teacher's Deployment", create(workload("Deployment", "qinglan-teacher", template())), PART),
    Row(KSERVE, "a model of the teacher's name", create(of(
        workload("Deployment", "qinglan-teacher", template()), "InferenceService", "qinglan-teacher")), PART),
    Row(DEPLOYMENTS, "the gateway's ReplicaSet for another Deployment", create(of(
        workload("ReplicaSet", "qinglan-gateway-abc", template()), "Deployment", "own")), PART),
    Row(DEPLOYMENTS, "the gateway's ReplicaSet", create(of(
        workload("ReplicaSet", "qinglan-gateway-abc", template()), "Deployment", "qinglan-gateway")), ADMITTED),
    Row(EDITOR, "a ReplicaSet of another name", create(workload("ReplicaSet", "qinglan-demo-abc", template())),
        ADMITTED),
    Row(EDITOR, "a Job of its own", create(workload("Job", "mine", template())), ADMITTED),
    Row(EDITOR, "a note on the gateway's ReplicaSet",
        merge("replicaset", GATEWAY, {"metadata": {"annotations": {"a": "b"}}}), ADMITTED),
    Row(STRANGER, "a PodDefault", create(POD_DEFAULT), PLATFORM),
    Row(ADMIN, "a PodDefault", create(POD_DEFAULT), ADMITTED),
    # Ways to a model.
    Row(EDITOR, "an Ingress of the model's host", create(ingress("evil")), PLATFORM),
    Row(STRANGER, "an Ingress to the gateway", create(ingress("qinglan-gateway")), PLATFORM),
    Row(KSERVE, "an Ingress of a model", create(ingress("rewriter-predictor")), ADMITTED),
    Row(ADMIN, "an Ingress to the RAG service", create(ingress("qinglan-rag")), ADMITTED),
    Row(STRANGER, "a route of gRPC", create(thing("GRPCRoute", "mine", "gateway.networking.k8s.io/v1", spec={})),
        CONTROLLERS),
    Row(EDITOR, "the model's Service gone", delete("service", "rewriter-predictor"), CONTROLLERS),
    Row(EDITOR, "a Service for a model to come",
        create(thing("Service", "style-predictor", spec=EXTERNAL)), CONTROLLERS),
    Row(EDITOR, "the model's Deployment gone", delete("deployment", "rewriter-predictor"), CONTROLLERS),
    Row(EDITOR, "the model's pod gone", delete("pod", PREDICTOR), CONTROLLERS),
    Row(EDITOR, "the model's pod evicted", evict(PREDICTOR), PLATFORM),
    Row(STRANGER, "the model's addresses gone",
        delete("endpointslice", "kubernetes.io/service-name=rewriter-predictor"), CONTROLLERS),
    Row(STRANGER, "all addresses gone", delete("endpointslice"), CONTROLLERS),
    Row(EDITOR, "a Service of its own gone", delete("service", "own"), ADMITTED),
    Row(KSERVE, "the model's Service gone", delete("service", "rewriter-predictor"), ADMITTED),
    Row(GARBAGE, "the model's Service gone", delete("service", "rewriter-predictor"), ADMITTED),
    Row(NODE, "the model's pod has ended", delete("pod", PREDICTOR), ADMITTED),
    Row(ADMIN, "the model's Service gone", delete("service", "rewriter-predictor"), ADMITTED),
    # What KFP's controllers write into a namespace says where artifacts go.
    *(
        Row(STRANGER, f"KFP's {name}", create(thing("ConfigMap", name, data={})), PLATFORM)
        for name in ("kfp-launcher", "artifact-repositories", "metadata-grpc-configmap")
    ),
    Row(STRANGER, "KFP's key", create(thing("Secret", "mlpipeline-minio-artifact", stringData={"a": "b"})), PLATFORM),
    Row(PROFILES, "KFP's settings", create(thing("ConfigMap", "kfp-launcher", data={})), ADMITTED),
    Row(PROFILES, "KFP's key",
        create(thing("Secret", "mlpipeline-minio-artifact", stringData={"a": "b"})), ADMITTED),
    Row(PROFILES, "the gateway's settings", create(thing("ConfigMap", "qinglan-gateway-new", data={})), PLATFORM),
    Row(ADMIN, "KFP's settings", create(thing("ConfigMap", "kfp-launcher", data={})), ADMITTED),
]  # fmt: skip


@pytest.fixture(scope="module")
def guarded(house: Kubectl) -> Iterator[Kubectl]:
    """Create the objects that the rows act on, and the rights of controllers that are not installed here."""
    kinds = [crd("kubeflow.org/v1alpha1", "PodDefault"), crd("gateway.networking.k8s.io/v1", "GRPCRoute")]
    own_deployment = workload("Deployment", "own", template())
    own_deployment["spec"]["replicas"] = 0
    plain = [
        thing("ServiceAccount", "default-editor"),
        *people(),
        own_deployment,
        thing("Service", "own", spec=SERVICE),
        pod(STEP),
    ]
    house.must("apply", "-f", "-", manifests=[*kinds, *plain])
    house.must("create", "-f", "-", manifests=[LEASE], account=ROLLOUT_ACCOUNT)
    house.must("create", "-f", "-", manifests=[rollout(NS)], account=PIPELINE)
    path = house.server.resource("modelrollouts").path(NS, "rewriter-1", "status")
    assert house.server.patch(path, {"status": {"phase": "Analyse"}}, ROLLOUT_ACCOUNT).refusal == ""
    with controller_rights(house, *CLUSTER_WIDE, NODE, DRAINER):
        until(lambda: house.try_to_create(step(), ARGO) == "", "Argo's rights are known")
        until(
            lambda: "PodDefault" in house("api-resources", "--api-group=kubeflow.org").text, "PodDefaults are served"
        )
        for label in (GATEWAY, RAG, ROLLOUT, PREDICTOR):
            house.a_pod(NS, label)
        until(lambda: house.exists("service", "rewriter-predictor", NS), "the model's Service")
        yield house
    house.must("delete", "modelrollout", "rewriter-1", "-n", NS)
    house.must("delete", "-f", "-", manifests=[*kinds, *plain, LEASE])


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.account or 'administrator'}: {row.what}")
def test_the_api_server_answers_as_the_table_says(guarded: Kubectl, row: Row) -> None:
    answer = row.action(guarded, row.account)

    assert (row.answer in answer) if row.answer else answer == "", answer


def test_a_nodes_kubelet_gets_the_token_of_a_pod_that_it_runs(guarded: Kubectl) -> None:
    words = ["create", "token", "qinglan-rollout", "-n", NS]

    assert guarded(*words, f"--as={NODE}").code == 0
    assert PLATFORM in guarded(*words, account=STRANGER).text
