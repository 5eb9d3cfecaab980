"""A cluster comes up, says how it is, and goes: all of it or nothing.

with running(root) as folder: ... folder.kubeconfig ...
"""

import fcntl
import json
import secrets
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx

from qinglan.errors import ConfigError, OutageError, QinglanError
from tests.cluster.build.binaries import build_all, kept_at, manifests
from tests.cluster.plane import certs, objects
from tests.cluster.plane.command_lines import Keys, parts, server, stages
from tests.cluster.plane.ports import Ports, free_ports
from tests.cluster.plane.processes import (
    Folder,
    Record,
    admin_client,
    answering,
    end,
    records,
    resident,
    runs,
    start,
    step_printer,
    until,
)  # fmt: skip

BUCKET = "qinglan"
NAMESPACES = {
    "kwok": "kube-system", "kserve": "kserve", "knative": "knative-serving", "training-operator": "kubeflow",
}  # fmt: skip
"""Namespace of the roles of each."""
KINDS = ("kserve", "knative", "training-operator", "prometheus-operator")
OWNED = ("etcd", "objects", "pki", "parts", "logs", "bin", "kwok.yaml", "env", ".kube", ".minio")


def up(root: Path, outlives: bool = True, ports: Ports | None = None) -> Folder:
    """A whole cluster in this folder: the one that runs there, or a new one."""
    folder = Folder(root.resolve())
    try:
        folder.root.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"{root}: no folder can be made there ({error.strerror}). Name another.") from error
    with one_command(folder.root, "cluster"):
        if not _runs_whole(folder):
            build_all()
            remove_owned(folder.root, OWNED)
            try:
                Rise(folder, ports or free_ports(), outlives).all()
            except BaseException:
                end(records(folder))  # half a cluster admits what the missing webhooks would refuse; the logs stay
                raise
    return folder


def down(root: Path, served: str = "cluster", owned: Iterable[str] = OWNED) -> None:
    """End what `up` started, print what that was, and remove its files."""
    folder = Folder(root.resolve())
    ended: list[Record] = []
    if folder.root.exists():
        with one_command(folder.root, served):
            ended = [record for record in records(folder) if runs(record)]
            volumes = _volumes(folder) if ended and folder.kubeconfig.exists() else []
            end(ended)
            for volume in volumes:
                shutil.rmtree(volume, ignore_errors=True)
            remove_owned(folder.root, owned)
    print("ended:", ", ".join(record.part.name for record in ended) or f"nothing, no {served} ran here")


def show(root: Path, served: str = "cluster") -> None:
    """Print whether each part runs, with its memory; an error if one has ended."""
    each = records(Folder(root.resolve()))
    for record in each:
        memory = f"{resident(record) / 2**20:6.0f} MiB" if runs(record) else "does not run"
        print(f"{record.part.name:26} pid {record.pid:7}  {memory}")
    if not each:
        print(f"Nothing runs here: make {served} starts it.")
    if ended := ended_parts(each):
        raise OutageError(f"{ended} ended: see {root / 'logs'}, then make {served}-down, and make {served} again.")


def ended_parts(each: Iterable[Record]) -> str:
    return ", ".join(record.part.name for record in each if not runs(record))


@contextmanager
def running(root: Path) -> Iterator[Folder]:
    """For as long as a block, or as this process."""
    try:
        yield up(root, outlives=False)
    finally:
        down(root)


def restart(folder: Folder, name: str) -> Record:
    """End one part and start it again as it was, on the same port; it is ours now, and ends with us."""
    old = next(record for record in records(folder) if record.part.name == name)
    end([old])
    new = start(folder, old.part, outlives=False)
    if new.part.ready:
        with admin_client(folder) as api:
            until(f"{name} is ready", answering(api, new.part), folder)
    return new


class Rise:
    """The way up, step after step, with a line and the seconds of each."""

    def __init__(self, folder: Folder, ports: Ports, outlives: bool) -> None:
        self.folder, self.ports, self.outlives = folder, ports, outlives
        self.keys = Keys(secrets.token_hex(8), secrets.token_hex(16))
        self.parts = parts(folder, ports, self.keys)
        self.say = step_printer()

    def all(self) -> None:
        certs.make(self.folder.pki, server(self.ports))
        self.say("certificates")
        with admin_client(self.folder) as api:
            self.control_plane(api)
            self.controllers(api)
            self.webhooks()
            until("every node is Ready", lambda: objects.nodes_ready(api, server(self.ports)), self.folder)
        self.say(f"{len(objects.bundled('nodes')[0]['items'])} nodes are Ready")
        self.leave()

    def control_plane(self, api: httpx.Client) -> None:
        """Every kind is served before the controllers start: some look for kinds then, and again only 30 s later."""
        self.start("etcd", "minio", "kube-apiserver")
        kinds = objects.load(file for module in KINDS for file in manifests(module, "crds"))
        self.await_ready(api, "etcd", "kube-apiserver")
        objects.apply(self.folder, [*objects.bundled("cluster"), *kinds])
        expected = objects.served(kinds)
        until("every kind is served", lambda: objects.all_served(api, server(self.ports), expected), self.folder)
        self.say(f"{len(kinds)} kinds are served")
        self.start("kube-controller-manager", "kube-scheduler")

    def controllers(self, api: httpx.Client) -> None:
        self.find_when_they_start()
        self.start("kwok", "kserve", "training-operator", "knative")
        self.await_ready(api, "kube-controller-manager", "kube-scheduler", "kwok", "minio")
        self.bucket()
        self.await_ready(api, "kserve", "training-operator")

    def start(self, *names: str) -> None:
        for name in names:
            start(self.folder, self.parts[name], self.outlives)

    def await_ready(self, api: httpx.Client, *names: str) -> None:
        for name in names:
            until(f"{name} is ready", answering(api, self.parts[name]), self.folder)
            self.say(f"{name} is ready")

    def find_when_they_start(self) -> None:
        rights = [
            it
            for module, namespace in NAMESPACES.items()
            for it in objects.in_namespace(objects.load(manifests(module, "rbac")), namespace)
        ]
        nodes = objects.bundled("nodes")
        objects.apply(self.folder, [*rights, *objects.bundled("kserve", "knative"), *nodes])
        objects.apply(self.folder, nodes, "--subresource=status")
        documents = [*manifests("kwok", "stages"), objects.BUNDLED / "stages.yaml"]
        Path(stages(self.folder)).write_text("\n---\n".join(file.read_text() for file in documents))
        self.say("upstream's roles, the nodes, and KServe's and Knative's configuration")

    def webhooks(self) -> None:
        authority = self.folder.pki / "ca.crt"
        kserve = objects.load(manifests("kserve", "webhooks"))
        training = objects.load(manifests("training-operator", "webhooks"))
        objects.apply(self.folder, [
            *objects.served_here(kserve, self.ports.kserve_webhook, authority),
            *objects.served_here(training, self.ports.training_webhook, authority, only="pytorchjob"),
        ])  # fmt: skip
        until("KServe's webhook is asked", lambda: objects.refuses(self.folder), self.folder)
        objects.apply(self.folder, objects.bundled("runtimes"))
        self.say("KServe refuses a wrong InferenceService")

    def bucket(self) -> None:
        from minio import Minio

        Minio(f"127.0.0.1:{self.ports.minio}", self.keys.user, self.keys.secret, secure=False).make_bucket(BUCKET)

    def leave(self) -> None:
        """Write the environment with which a shell uses the cluster, with a kubectl of its version."""
        (self.folder.root / "bin").mkdir()
        (self.folder.root / "bin" / "kubectl").symlink_to(kept_at("kubectl"))
        settings = {
            "KUBECONFIG": self.folder.kubeconfig, "QINGLAN_S3_ENDPOINT": f"http://127.0.0.1:{self.ports.minio}",
            "AWS_ACCESS_KEY_ID": self.keys.user, "AWS_SECRET_ACCESS_KEY": self.keys.secret,
        }  # fmt: skip
        env = self.folder.root / "env"
        env.touch(mode=0o600)
        lines = [f'export PATH="{self.folder.root / "bin"}:$PATH"']
        env.write_text("\n".join([*lines, *(f'export {name}="{value}"' for name, value in settings.items())]) + "\n")


def _runs_whole(folder: Folder) -> bool:
    """True if a whole cluster runs here, False if none does; an error if only some of its parts run."""
    each = records(folder)
    if not any(map(runs, each)):
        return False
    ended = ended_parts(each)
    if ended or not (folder.root / "env").exists():
        why = f"{ended} ended" if ended else "its start was interrupted"
        raise OutageError(
            f"{folder.root}: a cluster runs here that is not whole: {why}. "
            f"Look into {folder.root / 'logs'}, then end the rest with make cluster-down."
        )
    return True


def _volumes(folder: Folder) -> list[Path]:
    """The folders that the controller manager made for claims that are still there."""
    try:
        result = json.loads(objects.kubectl(folder, "get", "pv", "-o", "json", "--request-timeout=5s"))["items"]
    except QinglanError:
        return []
    paths = [Path(it["spec"].get("hostPath", {}).get("path", "/")) for it in result]
    return [path for path in paths if path.parent == Path("/tmp/hostpath_pv")]


def remove_owned(root: Path, names: Iterable[str]) -> None:
    """Remove what a command has made in its folder, and nothing that a person keeps beside it."""
    for name in names:
        path = root / name
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)


@contextmanager
def one_command(root: Path, served: str) -> Iterator[None]:
    """Refuse a second command on the same folder; `served`: its cluster, or its KFP."""
    with (root / ".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise ConfigError(f"{root}: another command is at work on this {served}; wait for it.") from error
        yield
