"""Check the rights of a run's account, its rollouts, its stores of releases, and a KFP without users."""

import json
from collections.abc import Iterable, Iterator

from pipelines.checks.cluster.access_review import KFP_PERMISSIONS, ROLLOUT_PERMISSIONS
from pipelines.checks.cluster.cluster_snapshot import ClusterSnapshot, Finding, join_names
from pipelines.checks.cluster.input_checks import WITHOUT_ENDPOINT, create_store_secret, patch_store_secret
from pipelines.checks.cluster.requirements import ReleaseStore, Requirements, RolloutTarget
from pipelines.graph.store_secret import STORE_ENDPOINT
from qinglan.jobs.cluster.rbac import Permission
from qinglan.store.s3_connection import ACCESS_KEY_VARIABLE, SECRET_KEY_VARIABLE

ROLLOUTS = "modelrollouts.qinglan.dev"
STORE_KEYS = (ACCESS_KEY_VARIABLE, SECRET_KEY_VARIABLE, STORE_ENDPOINT)
"""Keys that our own client of a store needs (S3Settings): it does not use a cloud's identity."""


def kfp_findings(needs: Requirements, snapshot: ClusterSnapshot) -> Iterator[Finding]:
    """Report rights that are missing and without which no step starts or ends."""
    if snapshot.kfp_denied:
        yield denied_finding(
            needs.service_account, snapshot.namespace, snapshot.namespace, snapshot.kfp_denied, KFP_PERMISSIONS,
            "KFP's driver and Argo's executor could not start or end a step",
        )  # fmt: skip


def release_findings(needs: Requirements, snapshot: ClusterSnapshot) -> Iterator[Finding]:
    """Report what would make the steps after the gate fail, hours after the start: their store and their rollout."""
    for target in needs.rollouts:
        yield from _rollout_findings(target, needs.service_account, snapshot)
    for release in needs.releases:
        yield from _store_findings(release, snapshot)


def one_namespace_finding(snapshot: ClusterSnapshot) -> Iterator[Finding]:
    """Warn of a KFP without users: its pods run in KFP's own namespace, which our manifests do not cover."""
    if snapshot.guarded is False:
        yield Finding(
            "warning",
            f"This KFP has one namespace for everybody, and pods run in {snapshot.namespace}, where no policy "
            "of Qinglan's holds them. A gateway in a tenant's namespace answers them only with the component "
            "manifests/one-namespace.",
            "See manifests/README.md, KFP of one namespace.",
        )


def _rollout_findings(target: RolloutTarget, account: str, snapshot: ClusterSnapshot) -> Iterator[Finding]:
    steps, namespace = join_names(target.steps), target.namespace
    if snapshot.rollout_kinds is not None and "modelrollouts" not in snapshot.rollout_kinds:
        yield Finding(
            "missing",
            f"{steps} would create a ModelRollout, and this cluster does not know {ROLLOUTS}.",
            "Apply the platform's part, once in a cluster:",
            "kubectl apply --server-side -k manifests/platform",
        )
    if namespace in snapshot.absent_namespaces:
        yield Finding(
            "missing",
            f"{steps} would create a ModelRollout in namespace {namespace}, which is not there.",
            "Apply the tenant's manifests (manifests/README.md), or mend deploy.namespace in the profile.",
        )
    elif denied := snapshot.rollout_denied.get(namespace):
        yield denied_finding(
            account, snapshot.namespace, namespace, denied, ROLLOUT_PERMISSIONS, f"{steps} would fail"
        )


def _store_findings(release: ReleaseStore, snapshot: ClusterSnapshot) -> Iterator[Finding]:
    steps, secret = join_names(release.steps), release.secret
    if secret and secret not in snapshot.stores:
        return  # among the unread
    store = snapshot.stores.get(secret)
    answer = snapshot.answers.get(release.address)
    if not secret:
        yield Finding(
            "missing",
            f"The graph gives {steps} no way to {release.address}.",
            "Compile it anew:",
            "qinglan compile",
        )
    elif store is None:
        yield Finding(
            "missing",
            f"Secret {secret} is not in namespace {snapshot.namespace}: {steps} could not reach {release.address}.",
            f"Make it{WITHOUT_ENDPOINT}:",
            create_store_secret(snapshot.namespace, secret),
        )
    elif lacking := [key for key in STORE_KEYS if key not in store.keys]:
        yield Finding(
            "missing",
            f"Secret {secret} in namespace {snapshot.namespace} has no {', '.join(lacking)}: {steps} could not reach "
            f"{release.address}.",
            "Add to store.env, or:",
            patch_store_secret(snapshot.namespace, secret, dict.fromkeys(lacking, "...")),
        )
    elif answer and answer.state != "silent":
        yield Finding(
            "missing",
            f"{release.address} cannot be read with the key in Secret {secret}: {answer.why}. {steps} would fail.",
            "Make the bucket, or mend the key.",
        )


def denied_finding(
    account: str, home: str, namespace: str, denied: Iterable[Permission], whole: Iterable[Permission], outcome: str
) -> Finding:
    """Report rights that an account of namespace `home` lacks in another, with a Role that grants them."""
    return Finding(
        "missing",
        f"ServiceAccount {account} in namespace {home} may not {'; '.join(map(str, denied))}"
        f"{'' if namespace == home else f' in namespace {namespace}'}: {outcome}.",
        "Give it all that this takes:",
        f"kubectl -n {namespace} apply -f - <<< '{_role(account, home, namespace, tuple(whole))}'",
    )


def _role(account: str, home: str, namespace: str, permissions: tuple[Permission, ...]) -> str:
    """A Role with these rights, and its binding."""
    name, group = f"{account}-{permissions[0].resource}", "rbac.authorization.k8s.io"
    about = {"apiVersion": f"{group}/v1", "metadata": {"name": name, "namespace": namespace}}
    role = {**about, "kind": "Role", "rules": [permission.rule for permission in permissions]}
    binding = {
        **about,
        "kind": "RoleBinding",
        "roleRef": {"apiGroup": group, "kind": "Role", "name": name},
        "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": home}],
    }
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": [role, binding]}, separators=(",", ":"))
