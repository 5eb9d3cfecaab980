"""The cluster of `make cluster` beside which KFP runs: its administrator, its store, and tokens of its accounts."""

from pathlib import Path
from typing import Any

import yaml

from qinglan.errors import ConfigError
from tests.cluster.plane.objects import kubectl
from tests.cluster.plane.processes import Folder, records, runs
from tests.kfp.backend.objects import NAMESPACE, Store

STEP = "Start it with make cluster; make kfp does so by itself."


def running_cluster(root: Path) -> Folder:
    """The folder of a cluster all of whose parts run."""
    folder = Folder(root.resolve())
    parts = records(folder)
    ended = [record.part.name for record in parts if not runs(record)]
    if not parts or ended:
        state = f"{', '.join(ended)} ended" if ended else "no cluster"
        raise ConfigError(f"{folder.root}: {state}. {STEP}")
    return folder


def store_of(cluster: Folder) -> Store:
    """The cluster's MinIO, as the record of its process has it."""
    [minio] = [record.part for record in records(cluster) if record.part.name == "minio"]
    [address] = [word.removeprefix("--address=") for word in minio.arguments if word.startswith("--address=")]
    return Store(address, minio.settings["MINIO_ROOT_USER"], minio.settings["MINIO_ROOT_PASSWORD"])


def create_token(cluster: Folder, namespace: str, account: str, audience: str = "") -> str:
    """A token of a service account for a day."""
    options = ["--duration=24h", *([f"--audience={audience}"] if audience else [])]
    return kubectl(cluster, "-n", namespace, "create", "token", account, *options).strip()


def write_kubeconfig(cluster: Folder, account: str, path: Path) -> None:
    """A kubeconfig of one of KFP's accounts: it may do what upstream's roles let it, and no more."""
    settings: dict[str, Any] = yaml.safe_load(cluster.kubeconfig.read_text())
    settings["users"][0]["user"] = {"token": create_token(cluster, NAMESPACE, account)}
    settings["contexts"][0]["context"]["namespace"] = NAMESPACE
    write_private(path, yaml.safe_dump(settings))


def write_private(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch(mode=0o600)
    path.write_text(text)
