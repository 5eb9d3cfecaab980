"""KFP's back end comes up beside a cluster, says how it is, and goes: all of it or nothing."""

import shutil
import socket
import subprocess
from pathlib import Path

import httpx

from qinglan.errors import ConfigError, OutageError, QinglanError
from tests.cluster.plane.objects import Object, all_served, apply, kubectl, served
from tests.cluster.plane.plane import ended_parts, one_command, remove_owned
from tests.cluster.plane.plane import up as start_cluster
from tests.cluster.plane.ports import pick_ports
from tests.cluster.plane.processes import (
    Folder,
    Record,
    admin_client,
    answering,
    end,
    records,
    runs,
    start,
    step_printer,
    until,
)
from tests.kfp.backend import objects
from tests.kfp.backend.build import Dist, build
from tests.kfp.backend.cluster import create_token, running_cluster, store_of, write_kubeconfig, write_private
from tests.kfp.backend.command_lines import (
    ACCOUNTS,
    ARGO_HEALTH,
    GRPC,
    HTTP,
    LOOPBACK,
    MLMD,
    PAGE,
    Ports,
    Setting,
    agent_token,
    kubeconfig,
    mariadb_libraries,
    member_token,
    parts,
)  # fmt: skip
from tests.kfp.backend.source import commit_of_tag

AUDIENCE = "pipelines.kubeflow.org"
PROFILE = "qinglan"
"""The namespace of the tenant, as manifests/overlays/laptop-cluster has it."""

OWNED = (
    "accounts",
    "config",
    "database",
    "database.sock",
    "mlmd.sqlite",
    "parts",
    "pods",
    "token",
    "logs",
    "env",
    "tenant",
)


def up(root: Path, cluster: Path, source: Path) -> Folder:
    """A whole back end in this folder, and the cluster too: the ones that run, or new ones."""
    folder = Folder(root.resolve())
    folder.root.mkdir(parents=True, exist_ok=True)
    with one_command(folder.root, "kfp"):
        if any(runs(record) for record in records(folder)):
            _require_whole(folder, store_of(running_cluster(cluster)))
            return folder
        commit_of_tag(source)
        _require_root()
        _require_pick_ports()
        control_plane = start_cluster(cluster)
        dist = build(source)
        remove_owned(folder.root, OWNED)
        try:
            Rise(folder, control_plane, dist).all()
        except BaseException:
            end(records(folder))  # the logs stay
            raise
    return folder


def require_running(folder: Folder) -> None:
    """Refuse where no KFP is up; the error names the command that starts one."""
    if not (folder.root / "env").exists() or not any(runs(record) for record in records(folder)):
        raise ConfigError(f"{folder.root}: no KFP runs there. make kfp starts one.")


class Rise:
    """The way up, step after step, with a line and the seconds of each."""

    def __init__(self, folder: Folder, cluster: Folder, dist: Dist) -> None:
        self.folder, self.cluster, self.dist = folder, cluster, dist
        self.store = store_of(cluster)
        self.setting = Setting(folder, dist, Ports(*pick_ports(3)), self.store, cluster.kubeconfig)
        self.parts = parts(self.setting)
        self.say = step_printer()

    def all(self) -> None:
        self.databases()
        self.kinds()
        self.profile()
        self.accounts()
        self.await_port("mariadb", self.setting.ports.database)
        self.await_port("mlmd", MLMD)
        self.start("apiserver")
        with httpx.Client(trust_env=False) as api:
            until("apiserver is ready", answering(api, self.parts["apiserver"]), self.folder)
        self.say("KFP's API server is ready")
        self.start("workflow-controller", "persistence-agent", "scheduledworkflow", "pods")
        self.await_port("workflow-controller", ARGO_HEALTH)
        self.leave()

    def databases(self) -> None:
        base, data = self.dist.mariadb, self.folder.root / "database"
        command = [
            str(base / "bin" / "mariadb-install-db"), "--no-defaults", f"--basedir={base}", f"--datadir={data}",
            "--user=root", "--auth-root-authentication-method=normal", "--skip-test-db",
        ]  # fmt: skip
        environment = {"PATH": "/usr/bin:/bin", **mariadb_libraries(self.dist)}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise QinglanError(f"{command[0]} failed: {done.stdout[-1500:]}{done.stderr[-1500:]}")
        self.start("mariadb", "mlmd")
        self.say("an empty database")

    def kinds(self) -> None:
        install = self.dist.source / "manifests" / "kustomize" / "base" / "installs" / "multi-user"
        upstream = [
            *objects.upstream_objects(kubectl(self.cluster, "kustomize", str(install))),
            *objects.argo_objects(self.dist),
        ]
        kinds = [it for it in upstream if it["kind"] == "CustomResourceDefinition"]
        apply(self.cluster, [*objects.namespaces([objects.NAMESPACE]), *kinds])
        with admin_client(self.cluster) as api:
            until("KFP's kinds are served", lambda: all_served(api, self.server, served(kinds)), self.folder)
        rest: list[Object] = [it for it in upstream if it not in kinds]
        apply(self.cluster, [
            *rest, *objects.metadata_service(self.dist), objects.argo_settings_of(self.dist, self.store),
            objects.store_secret(objects.NAMESPACE, self.store),
            objects.launcher_settings(objects.NAMESPACE, self.store),
        ])  # fmt: skip
        self.say(f"{len(kinds)} kinds and {len(rest)} objects of KFP's and Argo's installation")

    @property
    def server(self) -> str:
        return kubectl(self.cluster, "config", "view", "-o", "jsonpath={.clusters[0].cluster.server}")

    def profile(self) -> None:
        apply(self.cluster, objects.namespaces([PROFILE]))
        apply(self.cluster, objects.profile_objects(PROFILE, self.store))
        self.say(f"the profile {PROFILE}")

    def accounts(self) -> None:
        for name, account in ACCOUNTS.items():
            write_kubeconfig(self.cluster, account, kubeconfig(self.folder, name))
        agent = create_token(self.cluster, objects.NAMESPACE, ACCOUNTS["persistence-agent"], AUDIENCE)
        write_private(agent_token(self.folder), agent)
        write_private(member_token(self.folder), create_token(self.cluster, PROFILE, objects.MEMBER, AUDIENCE))
        (self.folder.root / "config").mkdir()
        settings = self.dist.source / "backend" / "src" / "apiserver" / "config" / "config.json"
        shutil.copy(settings, self.folder.root / "config")
        self.say(f"tokens of {len(ACCOUNTS)} accounts")

    def start(self, *names: str) -> None:
        for name in names:
            start(self.folder, self.parts[name], outlives=True)

    def await_port(self, name: str, port: int) -> None:
        until(f"{name} listens on {port}", lambda: _listens(port), self.folder)
        self.say(f"{name} listens")

    def leave(self) -> None:
        """Write the environment in which a shell submits runs."""
        settings = {
            "KFP_ENDPOINT": f"http://{LOOPBACK}:{HTTP}", "KFP_TOKEN_FILE": member_token(self.folder),
            "KFP_NAMESPACE": PROFILE, "KFP_UI_ENDPOINT": f"http://{LOOPBACK}:{PAGE}",
        }  # fmt: skip
        lines = [f"source {self.cluster.root / 'env'}", *(f'export {name}="{it}"' for name, it in settings.items())]
        write_private(self.folder.root / "env", "\n".join(lines) + "\n")


def _require_whole(folder: Folder, store: objects.Store) -> None:
    """Refuse a KFP that lacks a part, or that another cluster's store belongs to."""
    if problem := broken_state(records(folder), (folder.root / "env").exists(), store):
        raise OutageError(f"{folder.root}: {problem}. See {folder.root / 'logs'}; make kfp-down, and make kfp again.")


def broken_state(each: list[Record], up: bool, store: objects.Store) -> str:
    """Tell why a KFP some of whose parts run is of no use; empty if it is whole."""
    if ended := ended_parts(each):
        return f"{ended} ended"
    if not up:
        return "whoever started this KFP was ended before it was up"
    keys = {record.part.settings.get("OBJECTSTORECONFIG_ACCESSKEY") for record in each} - {None}
    return "" if keys == {store.access_key} else "the cluster that this KFP was started beside is gone"


def _require_root() -> None:
    done = subprocess.run(
        ["unshare", "--mount", "--pid", "--fork", "true"], capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise ConfigError(
            f"Pods run in mount and PID namespaces, which this user may not make "
            f"({done.stderr.strip()}). Run it as root."
        )


def _require_pick_ports() -> None:
    fixed = {GRPC: "KFP's gRPC", HTTP: "KFP's API", MLMD: "ML Metadata", ARGO_HEALTH: "Argo's controller"}
    taken = [f"{port} ({use})" for port, use in fixed.items() if _listens(port)]
    if taken:
        raise ConfigError(
            f"Ports that KFP cannot do without are taken: {', '.join(taken)}. "
            "A machine has one KFP; end what listens there."
        )


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(2)
        return probe.connect_ex((LOOPBACK, port)) == 0
