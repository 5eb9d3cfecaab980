"""Find what would stop a graph on this cluster: a pure function of a snapshot of the cluster.

KFP shows a pod as RUNNING while it waits for a Secret, a volume or a GPU that will never come, so this is checked
before the run starts.
"""

import json
import math
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence

from pipelines.checks.checks import Check
from pipelines.checks.cluster.cluster_reader import KFP_PERMISSIONS, ROLLOUT_PERMISSIONS
from pipelines.checks.cluster.cluster_snapshot import ClusterSnapshot, Node
from pipelines.checks.cluster.requirements import (
    ImportedInputs,
    NodeRequest,
    ReleaseStore,
    RequiredObject,
    Requirements,
    RolloutTarget,
)
from pipelines.checks.cluster.store_probe import bucket_of, in_other_bucket
from pipelines.graph.checks import DIGEST
from pipelines.graph.store_secret import FETCH_ENDPOINT, REGION, STORE_ENDPOINT
from qinglan.jobs.cluster.rbac import LAUNCHER_PERMISSIONS, Permission
from qinglan.lineage.signing.keys import keys_folder
from qinglan.lineage.signing.trust import TRUST_FILE
from qinglan.sizing.constants import GB, GIB
from qinglan.store.s3_connection import ACCESS_KEY_VARIABLE, SECRET_KEY_VARIABLE

TRAINING_OPERATOR = "github.com/kubeflow/training-operator/manifests/overlays/standalone?ref=v1.8.1"
SELECTOR_LABEL = "nvidia.com/gpu.product"
CLAIM = (
    '{"apiVersion":"v1","kind":"PersistentVolumeClaim","metadata":{"name":"%s"},'
    '"spec":{"accessModes":["ReadWriteMany"],"resources":{"requests":{"storage":"500Gi"}}}}'
)
INPUT_KEYS = (ACCESS_KEY_VARIABLE, SECRET_KEY_VARIABLE, REGION)
"""Keys that KFP's launcher needs in the store's Secret; AWS's client sends no request without a region."""

RELEASE_KEYS = (ACCESS_KEY_VARIABLE, SECRET_KEY_VARIABLE, STORE_ENDPOINT)
"""Keys that our own store client needs (S3Settings), because it does not use a cloud's identity."""


def check_requirements(
    needs: Requirements, snapshot: ClusterSnapshot, volumes: Mapping[str, float] = {}
) -> list[Check]:
    """Check everything that would stop the run; `volumes` maps volume claims to the bytes that the run needs."""
    checks = [check for need in needs.objects for check in _object_checks(need, snapshot)]
    checks += [check for machine in needs.machines for check in _machine_checks(machine, snapshot)]
    checks += _volume_checks(volumes, snapshot)
    checks += _right_checks(needs, snapshot)
    checks += [check for inputs in needs.inputs for check in _input_checks(inputs, snapshot)]
    checks += [check for target in needs.rollouts for check in _rollout_checks(target, needs, snapshot)]
    checks += [check for release in needs.releases for check in _release_checks(release, snapshot)]
    checks += _image_checks(needs, snapshot)
    checks += [_warning(unread) for unread in snapshot.unread]
    return sorted(dict.fromkeys(checks), key=lambda check: check.state)  # errors come first


def shared_namespace_checks(snapshot: ClusterSnapshot) -> Iterator[Check]:
    """Warn if KFP has no separate users: pods then run in KFP's own namespace, which our manifests do not cover."""
    if snapshot.guarded is False:
        yield _warning(
            f"This KFP has one namespace for everybody, and pods run in {snapshot.namespace}, where no policy "
            "of Qinglan's holds them. A gateway in a tenant's namespace answers them only with the component "
            "manifests/one-namespace.",
            "See manifests/README.md, KFP of one namespace.",
        )


def _missing(what: str, next_step: str = "", command: str = "") -> Check:
    return Check("error", "namespace", what, next_step, command=command)


def _warning(what: str, next_step: str = "") -> Check:
    return Check("warning", "namespace", what, next_step)


def _object_checks(need: RequiredObject, snapshot: ClusterSnapshot) -> Iterator[Check]:
    if (need.kind, need.name) not in snapshot.objects:
        return  # already reported as unreadable
    keys, namespace = snapshot.objects[need.kind, need.name], snapshot.namespace
    steps = join_names(need.steps, at_most=4)
    if keys is None and need.kind == "Service":
        yield _missing(
            f"Service {need.name} is not in namespace {namespace}; {steps} cannot start without it.",
            "Apply the tenant's manifests, which have the gateway (manifests/README.md), or name the one there is: "
            "--set gateway_url=http://HOST:PORT",
        )
    elif keys is None:
        yield _missing(
            f"{need.kind} {need.name} is not in namespace {namespace}; {steps} cannot start without it.",
            "Make it:",
            _create_command(need, namespace),
        )
    elif missing := sorted(need.keys - keys):
        yield _missing(
            f"{need.kind} {need.name} in namespace {namespace} has no key {', '.join(missing)}; {steps} cannot start "
            "without it.",
            "Make it anew, whole:",
            f"kubectl -n {namespace} delete {need.kind.lower()} {need.name} && {_create_command(need, namespace)}",
        )


def _create_command(need: RequiredObject, namespace: str) -> str:
    if need.kind == "ServiceAccount":
        return f"kubectl -n {namespace} create serviceaccount {need.name}"
    if need.kind == "PersistentVolumeClaim":
        return f"kubectl -n {namespace} apply -f - <<< '{CLAIM % need.name}'"
    kind = "secret generic" if need.kind == "Secret" else "configmap"
    options = []
    for key in sorted(need.keys):
        if key.endswith(".pem") or key == TRUST_FILE:  # files, which `qinglan keys new` makes
            options.append(f"--from-file={shlex.quote(str(keys_folder() / key))}")
        else:
            options.append(f"--from-literal={key}=...")
    return f"kubectl -n {namespace} create {kind} {need.name} {' '.join(options)}".rstrip()


def _machine_checks(machine: NodeRequest, snapshot: ClusterSnapshot) -> Iterator[Check]:
    """Report if too few nodes have the labels and the capacity, or if a quota is below the request.

    Whether the nodes are free or tainted is not checked.
    """
    nodes = snapshot.nodes
    if nodes is not None:
        labelled = [node for node in nodes if machine.labels.items() <= node.labels.items()]
        if sum(_has_room(node, machine) for node in labelled) < machine.nodes:
            yield _missing(
                f"{_request(machine)}, and {_shortage(machine, nodes, labelled)}.",
                "Add such nodes, or submit a profile for the ones you have. See what there is:",
                f"kubectl get nodes -L {next(iter(machine.labels), SELECTOR_LABEL)}",
            )
    for quota in snapshot.quotas or ():
        # Quotas count requests.memory or limits.memory, and memory; for a GPU only requests.nvidia.com/gpu exists
        # (https://kubernetes.io/docs/concepts/policy/resource-quotas/). Our pods have requests equal to limits.
        resource = quota.resource.removeprefix("requests.").removeprefix("limits.")
        total = machine.asks.get(resource, 0) * machine.nodes
        if quota.hard < total:
            each = "wants" if len(machine.steps) == 1 else "each want"
            yield _missing(
                f"{join_names(machine.steps)} {each} {_amount(resource, total)}, and quota {quota.name} in namespace "
                f"{snapshot.namespace} allows {_amount(resource, quota.hard)}.",
                "Submit a smaller profile, or have it raised:",
                f"kubectl -n {snapshot.namespace} edit quota {quota.name}",
            )


def _has_room(node: Node, machine: NodeRequest) -> bool:
    return all(node.allocatable.get(name, 0) >= count for name, count in machine.asks.items())


def _request(machine: NodeRequest) -> str:
    wants = "wants" if len(machine.steps) == 1 else "want"
    machines, each = ("a node", "") if machine.nodes == 1 else (f"{machine.nodes} nodes", " each")
    labels = ", ".join(f"{name}={value}" for name, value in machine.labels.items())
    labels = f"{labels} and " if labels else ""
    amounts = ", ".join(_amount(name, count) for name, count in machine.asks.items())
    return f"{join_names(machine.steps)} {wants} {machines} with {labels}{amounts}{each}"


def _amount(resource: str, count: float) -> str:
    return f"{count / GIB:g} GiB memory" if resource == "memory" else f"{count:g} {resource}"


def _shortage(machine: NodeRequest, nodes: Sequence[Node], labelled: Sequence[Node]) -> str:
    if not nodes:
        return "the cluster has no node"
    if not labelled:
        values = sorted({node.labels[name] for name in machine.labels for node in nodes if name in node.labels})
        known = f" (there are: {', '.join(values)})" if values else ""
        return f"none of {len(nodes)} nodes has that label{known}"
    if enough := sum(_has_room(node, machine) for node in labelled):
        return f"only {enough} of them {'has' if enough == 1 else 'have'} as much"
    for resource, count in machine.asks.items():
        most = max(node.allocatable.get(resource, 0) for node in labelled)
        if most < count:
            return f"the largest of them has {_amount(resource, most)}"
    return "none of them has all of that"


def _volume_checks(volumes: Mapping[str, float], snapshot: ClusterSnapshot) -> Iterator[Check]:
    for name, needed in volumes.items():
        size = snapshot.claim_bytes.get(name, 0.0)
        if 0 < size < needed:
            patch = {"spec": {"resources": {"requests": {"storage": f"{math.ceil(needed / GIB)}Gi"}}}}
            yield _missing(
                f"PersistentVolumeClaim {name} in namespace {snapshot.namespace} has {size / GB:,.1f} GB, and the "
                f"run keeps up to {needed / GB:,.1f} GB there (`qinglan fit` shows its parts).",
                "Claim a larger one, and name it in the profile (cluster.scratch, cluster.base_weights); or, where "
                "its StorageClass allows that, enlarge it:",
                f"kubectl -n {snapshot.namespace} patch pvc {name} -p '{json.dumps(patch, separators=(',', ':'))}'",
            )


def _right_checks(needs: Requirements, snapshot: ClusterSnapshot) -> Iterator[Check]:
    """Report rights that the service account lacks, and a cluster without PyTorchJobs if steps launch them."""
    account, namespace = needs.service_account, snapshot.namespace
    if snapshot.kfp_denied:
        outcome = "KFP's driver and Argo's executor could not start or end a step"
        yield _denied(account, namespace, namespace, snapshot.kfp_denied, KFP_PERMISSIONS, outcome)
    launching = [step for machine in needs.machines if machine.job for step in machine.steps]
    if not launching:
        return
    if snapshot.job_kinds is not None and "pytorchjobs" not in snapshot.job_kinds:
        yield _missing(
            f"{join_names(launching)} would launch a PyTorchJob, and this cluster does not know "
            "pytorchjobs.kubeflow.org.",
            "Install training-operator 1.8:",
            f"kubectl apply --server-side -k '{TRAINING_OPERATOR}'",
        )
    if snapshot.denied:
        outcome = f"{join_names(launching)} would fail"
        yield _denied(account, namespace, namespace, snapshot.denied, LAUNCHER_PERMISSIONS, outcome)


def _rollout_checks(target: RolloutTarget, needs: Requirements, snapshot: ClusterSnapshot) -> Iterator[Check]:
    """Report problems that would make the steps after the gate fail, hours after the start."""
    steps, namespace = join_names(target.steps), target.namespace
    if snapshot.rollout_kinds is not None and "modelrollouts" not in snapshot.rollout_kinds:
        yield _missing(
            f"{steps} would create a ModelRollout, and this cluster does not know modelrollouts.qinglan.dev.",
            "Apply the platform's part, once in a cluster:",
            "kubectl apply --server-side -k manifests/platform",
        )
    if namespace in snapshot.absent_namespaces:
        yield _missing(
            f"{steps} would create a ModelRollout in namespace {namespace}, which is not there.",
            "Apply the tenant's manifests (manifests/README.md), or mend deploy.namespace in the profile.",
        )
    elif denied := snapshot.rollout_denied.get(namespace):
        account, outcome = needs.service_account, f"{steps} would fail"
        yield _denied(account, snapshot.namespace, namespace, denied, ROLLOUT_PERMISSIONS, outcome)


def _denied(
    account: str, home: str, namespace: str, denied: Iterable[Permission], whole: Sequence[Permission], outcome: str
) -> Check:
    """Report rights that an account of namespace `home` lacks in `namespace`, with a command that grants them."""
    name, group = f"{account}-{whole[0].resource}", "rbac.authorization.k8s.io"
    about = {"apiVersion": f"{group}/v1", "metadata": {"name": name, "namespace": namespace}}
    role = {**about, "kind": "Role", "rules": [permission.rule for permission in whole]}
    binding = {
        **about,
        "kind": "RoleBinding",
        "roleRef": {"apiGroup": group, "kind": "Role", "name": name},
        "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": home}],
    }
    both = json.dumps({"apiVersion": "v1", "kind": "List", "items": [role, binding]}, separators=(",", ":"))
    return _missing(
        f"ServiceAccount {account} in namespace {home} may not {'; '.join(map(str, denied))}"
        f"{'' if namespace == home else f' in namespace {namespace}'}: {outcome}.",
        "Give it all that this takes:",
        f"kubectl -n {namespace} apply -f - <<< '{both}'",
    )


def _input_checks(inputs: ImportedInputs, snapshot: ClusterSnapshot) -> Iterator[Check]:
    """Report inputs that KFP's launcher could not fetch.

    KFP 2.17 only has the key of its pipeline root's bucket. For an input in another bucket, the launcher of each step
    uses AWS's client and the step's environment (fetchNonDefaultBuckets in backend/src/v2/component/launcher_v2.go).
    """
    steps, root, secret = join_names(inputs.steps, at_most=4), snapshot.pipeline_root, inputs.secret
    for uri in inputs.uris:
        answer = snapshot.answers.get(uri)
        if answer and answer.state != "silent":
            yield _missing(
                f"{uri} cannot be read with the key in Secret {secret}: {answer.why}. {steps} would fail.",
                "Copy the file there, or mend the address."
                if answer.state == "absent"
                else "Let this key list the bucket and read the object (s3:ListBucket, s3:GetObject), or mend it.",
            )
    outside = [uri for uri in inputs.uris if in_other_bucket(uri, root)]
    if not outside or root is None or snapshot.cloud_identity:
        return
    fetching = f"KFP could not fetch {join_names(outside)} for {steps}, in another bucket than its own ({root})."
    copying = f"Copy the files into KFP's own bucket, {''.join(bucket_of(root) or ())}"
    yield from _secret_checks(secret, INPUT_KEYS, fetching, copying, snapshot)


def _release_checks(release: ReleaseStore, snapshot: ClusterSnapshot) -> Iterator[Check]:
    steps, secret = join_names(release.steps), release.secret
    reaching = f"{steps} could not reach {release.address}."
    yield from _secret_checks(secret, RELEASE_KEYS, reaching, "", snapshot)
    answer = snapshot.answers.get(release.address)
    if answer and answer.state != "silent":
        yield _missing(
            f"{release.address} cannot be read with the key in Secret {secret}: {answer.why}. {steps} would fail.",
            "Make the bucket, or mend the key.",
        )


def _secret_checks(
    secret: str, required: Sequence[str], outcome: str, instead: str, snapshot: ClusterSnapshot
) -> Iterator[Check]:
    """Report a store's Secret that lacks keys. `outcome` says what would fail; `instead` is another remedy."""
    namespace = snapshot.namespace
    if not secret:
        next_step = f"{instead}, or compile it anew:" if instead else "Compile it anew:"
        yield _missing(f"The graph gives these steps no store's key: {outcome}", next_step, "qinglan compile")
    elif secret in snapshot.stores:  # else it is already reported as unreadable
        keys = snapshot.stores[secret]
        lacking = [key for key in required if key not in (keys or ())]
        if keys is None:
            make = f"{instead}, or make it" if instead else "Make it"
            literals = " ".join(f"--from-literal={key}=..." for key in (*INPUT_KEYS, FETCH_ENDPOINT, STORE_ENDPOINT))
            yield _missing(
                f"Secret {secret} is not in namespace {namespace}: {outcome}",
                f"{make} (without {FETCH_ENDPOINT} where the inputs are on AWS):",
                f"kubectl -n {namespace} create secret generic {secret} {literals}",
            )
        elif lacking:
            values = json.dumps({"stringData": dict.fromkeys(lacking, "...")}, separators=(",", ":"))
            yield _missing(
                f"Secret {secret} in namespace {namespace} has no {', '.join(lacking)}: {outcome}",
                f"{instead}, or add to store.env, or:" if instead else "Add to store.env, or:",
                f"kubectl -n {namespace} patch secret {secret} -p '{values}'",
            )


def _image_checks(needs: Requirements, snapshot: ClusterSnapshot) -> Iterator[Check]:
    loose = [image for image in needs.images if not DIGEST.search(image)]
    refused = [image for image in loose if snapshot.by_tag is not None and image not in snapshot.by_tag]
    if refused:
        yield _missing(
            f"{join_names(refused)}: by tag, and namespace {snapshot.namespace} takes images by digest alone "
            "(qinglan.dev/images=by-digest).",
            "Submit the line with --image NAME=REFERENCE@sha256:DIGEST for each, as `make images` prints them.",
        )
    elif loose:
        yield _warning(
            f"{join_names(loose)}: by tag, which may be another image tomorrow, and KFP's cache would not know. "
            "A release names images by digest."
        )


def join_names(names: Sequence[str], at_most: int = 12) -> str:
    if len(names) > at_most:
        names = (*names[: at_most - 1], f"{len(names) - at_most + 1} more")
    *first, last = names
    return f"{', '.join(first)} and {last}" if first else str(last)
