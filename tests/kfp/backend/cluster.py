"""The cluster of `make cluster` beside which KFP runs: its administrator, its store, and tokens of its accounts."""

from pathlib import Path
from typing import Any

import yaml

from qinglan.errors import ConfigError
from tests.cluster.plane.objects import kubectl
from tests.cluster.plane.plane import ended_parts
from tests.cluster.plane.processes import Folder, records
from tests.kfp.backend.objects import NAMESPACE, Store


def running_cluster(root: Path) -> Folder:
    """The folder of a cluster all of whose parts run."""
    folder = Folder(root.resolve())
    parts = records(folder)
    ended = ended_parts(parts)
    if not parts or ended:
        state = f"{ended} ended" if ended else "no cluster"
        raise ConfigError(f"{folder.root}: {state}. Start it with make cluster; make kfp does so by itself.")
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


def write_kubeconfig(cluster: Folder, account: str, path: Path, namespace: str = NAMESPACE) -> None:
    """Write a kubeconfig with the token of a service account, so that only its own roles count."""
    settings: dict[str, Any] = yaml.safe_load(cluster.kubeconfig.read_text())
    settings["users"][0]["user"] = {"token": create_token(cluster, namespace, account)}
    settings["contexts"][0]["context"]["namespace"] = namespace
    write_private(path, yaml.safe_dump(settings))


def write_private(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch(mode=0o600)
    path.write_text(text)
