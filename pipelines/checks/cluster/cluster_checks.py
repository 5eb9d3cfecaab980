"""Find what would stop a graph on this cluster: a pure function of a snapshot of the cluster.

KFP shows a pod as RUNNING while it waits for a Secret, a volume or a GPU that will never come, so this is checked
before the run starts.
"""

import shlex
from collections.abc import Iterator, Mapping

from pipelines.checks.cluster.cluster_snapshot import ClusterSnapshot, Finding, Node, Quota, join_names
from pipelines.checks.cluster.input_checks import input_findings
from pipelines.checks.cluster.release_checks import denied_finding, kfp_findings, release_findings
from pipelines.checks.cluster.requirements import NodeRequest, RequiredObject, Requirements
from pipelines.graph.checks import DIGEST
from qinglan.jobs.cluster.rbac import LAUNCHER_PERMISSIONS
from qinglan.lineage.signing.keys import keys_folder
from qinglan.lineage.signing.trust import TRUST_FILE

JOBS = "pytorchjobs.kubeflow.org"
TRAINING_OPERATOR = "github.com/kubeflow/training-operator/manifests/overlays/standalone?ref=v1.8.1"
GIB = 1024**3
SELECTOR_LABEL = "nvidia.com/gpu.product"
CLAIM = (
    '{"apiVersion":"v1","kind":"PersistentVolumeClaim","metadata":{"name":"%s"},'
    '"spec":{"accessModes":["ReadWriteMany"],"resources":{"requests":{"storage":"500Gi"}}}}'
)


def check_requirements(needs: Requirements, snapshot: ClusterSnapshot) -> list[Finding]:
    """Everything that would keep a step waiting for ever, then warnings, then what could not be checked."""
    findings = [finding for need in needs.objects for finding in _object_findings(need, snapshot)]
    findings += [finding for machine in needs.machines for finding in _node_findings(machine, snapshot)]
    findings += [finding for machine in needs.machines for finding in _quota_findings(machine, snapshot)]
    findings += _token_findings(needs, snapshot)
    findings += list(kfp_findings(needs, snapshot))
    findings += [finding for inputs in needs.inputs for finding in input_findings(inputs, snapshot)]
    findings += _job_findings(needs, snapshot)
    findings += list(release_findings(needs, snapshot))
    findings += _claim_findings(snapshot)
    findings += _image_findings(needs, snapshot)
    findings += [Finding("unchecked", unread) for unread in snapshot.unread]
    order = ("missing", "warning", "unchecked")
    return sorted(dict.fromkeys(findings), key=lambda finding: order.index(finding.weight))


def _object_findings(need: RequiredObject, snapshot: ClusterSnapshot) -> Iterator[Finding]:
    if (need.kind, need.name) not in snapshot.objects:
        return  # it could not be read, which `unread` reports
    keys = snapshot.objects[need.kind, need.name]
    steps = join_names(need.steps, at_most=4)
    if keys is None:
        yield Finding(
            "missing",
            f"{need.kind} {need.name} is not in namespace {snapshot.namespace}; {steps} cannot start without it.",
            *_next_step(need, snapshot.namespace),
        )
    elif missing := sorted(need.keys - keys):
        yield Finding(
            "missing",
            f"{need.kind} {need.name} in namespace {snapshot.namespace} has no key {', '.join(missing)}; "
            f"{steps} cannot start without it.",
            "Make it anew, whole:",
            f"kubectl -n {snapshot.namespace} delete {need.kind.lower()} {need.name} && "
            f"{_create_command(need, snapshot.namespace)}",
        )


def _next_step(need: RequiredObject, namespace: str) -> tuple[str, str]:
    """Advice for a missing object, and its command."""
    if need.kind == "Service":
        return (
            "Apply the tenant's manifests, which have the gateway (manifests/README.md), or name the one there is: "
            "--set gateway_url=http://HOST:PORT",
            "",
        )
    return "Make it:", _create_command(need, namespace)


def _create_command(need: RequiredObject, namespace: str) -> str:
    """The kubectl command that creates the object with the keys it must hold."""
    if need.kind == "ServiceAccount":
        return f"kubectl -n {namespace} create serviceaccount {need.name}"
    if need.kind == "PersistentVolumeClaim":
        return f"kubectl -n {namespace} apply -f - <<< '{CLAIM % need.name}'"
    kind = "secret generic" if need.kind == "Secret" else "configmap"
    sources = " ".join(_source(key) for key in sorted(need.keys))
    return f"kubectl -n {namespace} create {kind} {need.name} {sources}".rstrip()


def _source(key: str) -> str:
    """kubectl's option for a value; signing keys and the trust policy are files, which `qinglan keys new` makes."""
    if key.endswith(".pem") or key == TRUST_FILE:
        return f"--from-file={shlex.quote(str(keys_folder() / key))}"
    return f"--from-literal={key}=..."


def _token_findings(needs: Requirements, snapshot: ClusterSnapshot) -> Iterator[Finding]:
    """Report a service account without a token: KFP's driver and launcher need one, and nothing else mounts it."""
    if needs.service_account in snapshot.without_token:
        account, namespace = needs.service_account, snapshot.namespace
        yield Finding(
            "missing",
            f"ServiceAccount {account} in namespace {namespace} mounts no token into its pods "
            "(automountServiceAccountToken: false): KFP's driver could not ask the API server, and the run would "
            "fail at once.",
            "Mount it:",
            f"kubectl -n {namespace} patch serviceaccount {account} -p '{{\"automountServiceAccountToken\":true}}'",
        )


def _node_findings(machine: NodeRequest, snapshot: ClusterSnapshot) -> Iterator[Finding]:
    """Report too few nodes with the labels and capacity; whether they are free or tainted is not checked."""
    if snapshot.nodes is None:
        return
    labelled = [node for node in snapshot.nodes if _has_labels(node, machine)]
    if sum(_has_room(node, machine.asks) for node in labelled) < machine.nodes:
        yield Finding(
            "missing",
            f"{_request(machine)}, and {_shortage(machine, snapshot.nodes, labelled)}.",
            "Add such nodes, or submit a profile for the ones you have. See what there is:",
            f"kubectl get nodes -L {next(iter(machine.labels), SELECTOR_LABEL)}",
        )


def _has_labels(node: Node, machine: NodeRequest) -> bool:
    return all(node.labels.get(name) == value for name, value in machine.labels.items())


def _has_room(node: Node, asks: Mapping[str, float]) -> bool:
    return all(node.allocatable.get(name, 0) >= count for name, count in asks.items())


def _request(machine: NodeRequest) -> str:
    wants = "wants" if len(machine.steps) == 1 else "want"
    machines, each = ("a node", "") if machine.nodes == 1 else (f"{machine.nodes} nodes", " each")
    labels = f"{_labels(machine.labels)} and " if machine.labels else ""
    amounts = ", ".join(_amount(name, count) for name, count in machine.asks.items())
    return f"{join_names(machine.steps)} {wants} {machines} with {labels}{amounts}{each}"


def _amount(resource: str, count: float) -> str:
    return f"{count / GIB:g} GiB memory" if resource == "memory" else f"{count:g} {resource}"


def _shortage(machine: NodeRequest, nodes: tuple[Node, ...], labelled: list[Node]) -> str:
    if not nodes:
        return "the cluster has no node"
    if not labelled:
        return f"none of {len(nodes)} nodes has that label{_other_labels(machine, nodes)}"
    if enough := sum(_has_room(node, machine.asks) for node in labelled):
        return f"only {enough} of them {'has' if enough == 1 else 'have'} as much"
    for resource, count in machine.asks.items():
        most = max(node.allocatable.get(resource, 0) for node in labelled)
        if most < count:
            return f"the largest of them has {_amount(resource, most)}"
    return "none of them has all of that"


def _other_labels(machine: NodeRequest, nodes: tuple[Node, ...]) -> str:
    """The values that nodes have for the label in question."""
    values = sorted({node.labels[name] for name in machine.labels for node in nodes if name in node.labels})
    return f" (there are: {', '.join(values)})" if values else ""


def _quota_findings(machine: NodeRequest, snapshot: ClusterSnapshot) -> Iterator[Finding]:
    for quota in snapshot.quotas or ():
        resource = quota.resource.removeprefix("requests.").removeprefix("limits.")
        if total := machine.asks.get(resource, 0) * machine.nodes:
            yield from _quota(machine, resource, total, quota, snapshot.namespace)


def _quota(machine: NodeRequest, resource: str, total: float, quota: Quota, namespace: str) -> Iterator[Finding]:
    """Report a quota that is too small, or warn of one whose rest is too small now."""
    each = "wants" if len(machine.steps) == 1 else "each want"
    quota_name = f"quota {quota.name} in namespace {namespace}"
    shortage = f"{join_names(machine.steps)} {each} {_amount(resource, total)}, and {quota_name}"
    left = quota.hard - quota.used
    if quota.hard < total:
        yield Finding(
            "missing",
            f"{shortage} allows {_amount(resource, quota.hard)}.",
            "Submit a smaller profile, or have it raised:",
            f"kubectl -n {namespace} edit quota {quota.name}",
        )
    elif left < total:
        yield Finding(
            "warning",
            f"{shortage} has {_amount(resource, left)} left now: it waits until others are done.",
            "See who has them:",
            f"kubectl -n {namespace} describe quota {quota.name}",
        )


def _job_findings(needs: Requirements, snapshot: ClusterSnapshot) -> Iterator[Finding]:
    launching = [step for machine in needs.machines if machine.job for step in machine.steps]
    if not launching:
        return
    if snapshot.job_kinds is not None and "pytorchjobs" not in snapshot.job_kinds:
        yield Finding(
            "missing",
            f"{join_names(launching)} would launch a PyTorchJob, and this cluster does not know {JOBS}.",
            "Install training-operator 1.8:",
            f"kubectl apply --server-side -k '{TRAINING_OPERATOR}'",
        )
    if snapshot.denied:
        yield denied_finding(
            needs.service_account, snapshot.namespace, snapshot.namespace, snapshot.denied,
            LAUNCHER_PERMISSIONS, f"{join_names(launching)} would fail",
        )  # fmt: skip


def _claim_findings(snapshot: ClusterSnapshot) -> Iterator[Finding]:
    for name in sorted(snapshot.unbound):
        yield Finding(
            "warning",
            f"PersistentVolumeClaim {name} has no volume yet. That is well where one is made for the first pod.",
            "If not:",
            f"kubectl -n {snapshot.namespace} describe pvc {name}",
        )


def _image_findings(needs: Requirements, snapshot: ClusterSnapshot) -> Iterator[Finding]:
    loose = [image for image in needs.images if not DIGEST.search(image)]
    refused = [image for image in loose if snapshot.by_tag is not None and image not in snapshot.by_tag]
    if refused:
        yield Finding(
            "missing",
            f"{join_names(refused)}: by tag, and namespace {snapshot.namespace} takes images by digest alone "
            "(qinglan.dev/images=by-digest).",
            "Submit the line with --image NAME=REFERENCE@sha256:DIGEST for each, as `make images` prints them.",
        )
    elif loose:
        yield Finding(
            "warning",
            f"{join_names(loose)}: by tag, which may be another image tomorrow, and KFP's cache would not know. "
            "A release names images by digest.",
        )


def _labels(labels: Mapping[str, str]) -> str:
    return ", ".join(f"{name}={value}" for name, value in labels.items())
