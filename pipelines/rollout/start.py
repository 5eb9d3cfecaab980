"""Start the rollout of a release in a store, after the same lineage check as in the deploy stage."""

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from components.release.deploy.cluster import ClusterRollouts
from components.release.deploy.config import DeployConfig
from components.release.deploy.stage import Deployed, deploy
from pipelines.style import RELEASE_DEFAULTS
from qinglan.config import load_yaml
from qinglan.kubernetes.client import Api, connect
from qinglan.lineage.audit_targets import resolve_digest
from qinglan.lineage.release_folder import read_release
from qinglan.lineage.trust import TrustPolicy
from qinglan.store import open_store


def start_rollout(
    target: str, store: str, namespace: str, settings: Path | None, policy: TrustPolicy, api: Api | None = None
) -> Deployed:
    """Start a rollout of `target`: tenant/model, or a digest or its beginning; a refusal lists all reasons."""
    here = (api or connect()).within(namespace)
    release_store = open_store(store)
    digest = resolve_digest(release_store, target)
    values = load_yaml(settings) if settings else {}
    with TemporaryDirectory(prefix="qinglan-rollout-") as parent:
        folder = release_store.pull(digest, Path(parent) / digest[:12])
        name = target if "/" in target else read_release(folder).name
        config = build_deploy_config(values, name, store, here.namespace, settings)
        return deploy(folder, config, policy, ClusterRollouts(config.namespace, here))


def build_deploy_config(
    values: dict[str, Any], name: str, store: str, namespace: str, settings: Path | None
) -> DeployConfig:
    """Combine the file's rollout policy with the command line's release, store and destination."""
    usual = RELEASE_DEFAULTS.get(name.rpartition("/")[2], {})
    settings_of_rollout = {**usual, **values, "name": name, "store": store, "namespace": namespace}
    return DeployConfig.parse(settings_of_rollout, str(settings or "start"))
