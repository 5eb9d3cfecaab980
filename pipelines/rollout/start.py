"""A rollout of a release that a store holds, begun by hand as the deploy stage begins one: by the same walk."""

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from components.release.deploy.cluster import ClusterRollouts
from components.release.deploy.config import DeployConfig
from components.release.deploy.stage import Deployed, deploy
from pipelines.style import DEPLOY_DEFAULTS
from qinglan.config import load_yaml
from qinglan.kubernetes.client import Api, connect
from qinglan.lineage.audit_targets import resolve_digest
from qinglan.lineage.release_folder import read_release
from qinglan.lineage.trust import TrustPolicy
from qinglan.store import open_store


def start_rollout(
    target: str, store: str, namespace: str, settings: Path | None, policy: TrustPolicy, api: Api | None = None
) -> Deployed:
    """The target is tenant/model, or a digest or its beginning; refused with all that stands against it."""
    here = (api or connect()).within(namespace)
    shelf = open_store(store)
    digest = resolve_digest(shelf, target)
    values = load_yaml(settings) if settings else {}
    with TemporaryDirectory(prefix="qinglan-rollout-") as place:
        folder = shelf.pull(digest, Path(place) / digest[:12])
        name = target if "/" in target else read_release(folder).name
        config = build_deploy_config(values, name, store, here.namespace, settings)
        return deploy(folder, config, policy, ClusterRollouts(config.namespace, here))


def build_deploy_config(
    values: dict[str, Any], name: str, store: str, namespace: str, settings: Path | None
) -> DeployConfig:
    """The command line says what is deployed, from where and to where; the file, how."""
    usual = DEPLOY_DEFAULTS if name.rpartition("/")[2] == "style" else {}
    settings_of_rollout = {**usual, **values, "name": name, "store": store, "namespace": namespace}
    return DeployConfig.parse(settings_of_rollout, str(settings or "start"))
