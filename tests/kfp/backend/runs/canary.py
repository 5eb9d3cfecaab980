"""Canaries of the served model on real runs, a real KServe and a real Prometheus; their users are played.

    python -m tests.kfp.backend canary

1 % of the served model's requests fail. A good canary is a new model that KFP trains and releases; it does as well
and is promoted. A bad one is the model before, brought back by `qinglan rollout start`; 6 % of its requests fail, and
it is taken back. The controller reads both from Prometheus and decides by its default policy.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from qinglan.errors import ConfigError, GateHeldError, QinglanError
from qinglan.kubernetes.client import connect
from qinglan.kubernetes.model_rollouts import rollout_number, rollout_outcome, rollouts_of_service
from tests.cluster.plane.objects import kubectl
from tests.cluster.plane.processes import Folder, step_printer
from tests.cluster.rollout.prometheus import TARGETS, Pod, write_targets
from tests.cluster.rollout.rollout_world import Players
from tests.kfp.backend.backend import PROFILE as NAMESPACE
from tests.kfp.backend.cluster import running_cluster
from tests.kfp.backend.runs.rewriter_run import (
    SERVICE,
    await_rollout,
    command,
    newest_rollout,
    objects_of,
    outcome,
    rollouts,
    submit,
)
from tests.kfp.backend.runs.tenant import RELEASES, ROLLOUT, Tenant

STABLE_FAILS = 0.01


def run_canaries(folder: Folder, cluster_root: Path) -> None:
    """Roll out a good and then a bad canary on what `make kfp-run` left."""
    say = step_printer()
    cluster = running_cluster(cluster_root)
    require_served(newest_rollout(cluster))
    tenant = Tenant(folder.root / "tenant")
    for name, kind in KINDS.items():
        roll_out(folder, cluster, tenant, kind)
        say(f"the {name} canary ended as it should")
    command(folder, "audit", "--live", SERVICE, "-n", NAMESPACE)
    say("audited")


def require_served(rollout: Any) -> None:
    """Refuse where no model is served yet, or a canary is under way."""
    if rollout.get("status", {}).get("phase") != "Done":
        raise ConfigError(
            f"Namespace {NAMESPACE} serves no model yet, or a rollout is under way. First: make kfp-run"
        )


def release_new_model(folder: Folder, cluster: Folder, tenant: Tenant) -> None:
    """Train another model on the same data, and release and deploy it."""
    number = rollout_number(newest_rollout(cluster)) + 1
    submit(folder, tenant, candidate_profile(tenant.profile, number))


def bring_back(folder: Folder, cluster: Folder, tenant: Tenant) -> None:
    """Begin a rollout of the model that was served before."""
    settings = tenant.root / "rollout.yaml"
    settings.write_text(yaml.safe_dump({"rollout": ROLLOUT}))
    options = ["--store", RELEASES, "--settings", str(settings), "-n", NAMESPACE]
    command(folder, "rollout", "start", previous_release(rollouts(cluster)), *options)


def previous_release(existing: Sequence[Any]) -> str:
    """The digest of the release that was promoted last before the served one."""
    promoted = [
        it["spec"]["release"] for it in rollouts_of_service(existing, SERVICE) if rollout_outcome(it) == PROMOTED
    ]
    return str([release["digest"] for release in promoted if release["uri"] != promoted[-1]["uri"]][-1])


class Kind(NamedTuple):
    """How a canary comes, how its users fare, and the end that its rollout should have."""

    begin: Callable[[Folder, Folder, Tenant], None]
    fails: float
    """The share of its requests that fail."""

    outcome: str
    exit_code: int = 0


PROMOTED = "Promoted"
KINDS = {
    "good": Kind(release_new_model, STABLE_FAILS, PROMOTED),
    "bad": Kind(bring_back, 0.06, "RolledBack", GateHeldError.exit_code),
}


def roll_out(folder: Folder, cluster: Folder, tenant: Tenant, kind: Kind) -> None:
    """Begin a canary and play its users; an error where it ends in another way than it should."""
    remove_idle_revisions(cluster)
    kind.begin(folder, cluster, tenant)
    rollout = newest_rollout(cluster)
    name = rollout["metadata"]["name"]
    with played_users(cluster, tenant, rollout["spec"]["release"]["uri"], kind.fails):
        command(folder, "rollout", "watch", name, "-n", NAMESPACE, expected=kind.exit_code)
    done = await_rollout(cluster)
    if rollout_outcome(done) != kind.outcome:
        raise QinglanError(f"{name}: {outcome(done)}; it should have ended {kind.outcome}")


def remove_idle_revisions(cluster: Folder) -> None:
    """Delete the revisions that get no request, or their pods would leave the canary no room in the quota.

    Knative's autoscaler takes such pods away; here it keeps one of each revision.
    """
    [service] = objects_of(cluster, "inferenceservices.serving.kserve.io")
    traffic = service["status"]["components"]["predictor"]["traffic"]
    serving = {it["revisionName"] for it in traffic if it.get("percent")}
    names = {it["metadata"]["name"] for it in objects_of(cluster, "revisions.serving.knative.dev")}
    for name in sorted(names - serving):
        kubectl(cluster, "-n", NAMESPACE, "delete", "revision", name)


def candidate_profile(profile: Path, number: int) -> Path:
    """The tenant's profile with seeds of this number's: the same data and other models."""
    settings = yaml.safe_load(profile.read_text())
    for training in ("sft", "ppo"):
        settings[training] = settings.get(training, {}) | {"seed": number}
    target = profile.with_name(f"candidate-{number}.yaml")
    target.write_text(yaml.safe_dump(settings, allow_unicode=True))
    return target


@contextmanager
def played_users(cluster: Folder, tenant: Tenant, canary: str, fails: float) -> Iterator[None]:
    """Count requests of every release that a rollout brought, by its share of the traffic, for as long as a block."""
    api = connect({"KUBECONFIG": str(cluster.kubeconfig), "QINGLAN_NAMESPACE": NAMESPACE})
    versions = {it["uri"]: it["model"][:12] for it in (rollout["spec"]["release"] for rollout in rollouts(cluster))}
    pods = {uri: Pod(NAMESPACE, f"pod-of-{version}", version) for uri, version in versions.items()}
    write_targets(tenant.prometheus / TARGETS, pods.values())
    players = Players(api, pods)
    players.fails = {version: fails if uri == canary else STABLE_FAILS for uri, version in versions.items()}
    try:
        yield
    finally:
        players.close()
        write_targets(tenant.prometheus / TARGETS, ())
        for pod in pods.values():
            pod.end()
