"""Start the rollout of a release in a store, after the same lineage check as in the deploy stage."""

from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from components.release.deploy.cluster import ClusterRollouts
from components.release.deploy.config import DeployConfig
from components.release.deploy.stage import Deployed, deploy
from pipelines.lines.style import RELEASE_DEFAULTS
from qinglan.config import load_yaml
from qinglan.errors import AlteredError
from qinglan.kubernetes.client import Api, connect
from qinglan.kubernetes.model_rollouts import Object
from qinglan.lineage.auditing.audit_targets import NAME, name_claim, resolve_digest
from qinglan.lineage.signing.trust import TrustPolicy
from qinglan.lineage.trace.name_moves import forgotten_releases, name_findings
from qinglan.lineage.trace.release_folder import read_release
from qinglan.store import Store, open_store


def start_rollout(
    target: str, store: str, namespace: str, settings: Path | None, policy: TrustPolicy, api: Api | None = None
) -> Deployed:
    """Start a rollout of the release that `target` names: tenant/model, a digest, or the beginning of a digest. If it
    is refused, the error lists all reasons."""
    api_of_namespace = (api or connect()).within(namespace)
    release_store = open_store(store)
    rollouts = ClusterRollouts(api_of_namespace.namespace, api_of_namespace)
    digest = find_release(release_store, target, policy, rollouts.all())
    values = load_yaml(settings) if settings else {}
    with TemporaryDirectory(prefix="qinglan-rollout-") as parent:
        folder = release_store.pull(digest, Path(parent) / digest[:12])
        name = target if "/" in target else read_release(folder).name
        config = build_deploy_config(values, name, store, api_of_namespace.namespace, settings)
        return deploy(folder, config, policy, rollouts)


def find_release(store: Store, target: str, policy: TrustPolicy, rollouts: Iterable[Object]) -> str:
    """Return the digest that `target` names; AlteredError if the name's signed history does not prove it."""
    if not NAME.fullmatch(target):
        return resolve_digest(store, target)
    claim = name_claim(store, target)
    reasons = [str(finding) for finding in name_findings(claim, policy, datetime.now(UTC))]
    reasons += [
        f"{brought}, which the name's history does not have: entries were removed, or it was released elsewhere"
        for brought in forgotten_releases(claim.history, rollouts)
    ]
    if reasons:
        listed = (f"  {reason}" for reason in reasons)
        raise AlteredError(
            f"{target}: where it points is not proven; start a release by its digest instead:", *listed
        )
    return claim.history.digest


def build_deploy_config(
    values: dict[str, Any], name: str, store: str, namespace: str, settings: Path | None
) -> DeployConfig:
    usual = RELEASE_DEFAULTS.get(name.rpartition("/")[2], {})
    settings_of_rollout = {**usual, **values, "name": name, "store": store, "namespace": namespace}
    return DeployConfig.parse(settings_of_rollout, str(settings or "start"))
