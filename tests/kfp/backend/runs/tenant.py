"""A tenant on the cluster as its platform team sets it up: the overlay, Secrets, trust, a sheet in a bucket, servers.

The overlay is manifests/overlays/laptop-cluster. Its Deployments are played by KWOK; the servers themselves run as
processes of this machine, on the ports of their Services.
"""

import base64
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import yaml

from commands.run.run import fit_local_reranker
from pipelines.execute.rundir import RunDir
from pipelines.lines.config import load_config
from qinglan.config import merge_settings
from qinglan.errors import QinglanError
from qinglan.files.files import atomic_write
from standins.samples import write_sample
from tests.cluster.plane.objects import apply, kubectl
from tests.cluster.plane.processes import Folder, Part, answering, records, runs, start, until
from tests.cluster.rollout.prometheus import command_line, write_configuration
from tests.kfp.backend.backend import PROFILE as NAMESPACE
from tests.kfp.backend.cluster import write_kubeconfig, write_private
from tests.kfp.backend.objects import Store
from tests.manifests.manifest_objects import MANIFESTS, Object

TENANT = "fivedoctors"
OVERLAY = Path("overlays") / "laptop-cluster"
BUCKET = "data"
"""Another bucket than KFP's own, as a company's sheets lie in one."""

RELEASES = f"s3://qinglan/{TENANT}"
PORTS = {"teacher": 8100, "rag": 8200, "gateway": 8300, "prometheus": 9090, "rollout": 8500}
PROMETHEUS = f"http://127.0.0.1:{PORTS['prometheus']}"
RECONCILE_SECONDS = 5
ROLLOUT = {"mode": "Serverless", "stepSeconds": 20}
"""The default policy in a hurry; only Serverless sends a canary traffic."""


class Tenant(NamedTuple):
    """The tenant's files on this machine."""

    root: Path

    @property
    def keys(self) -> Path:
        return self.root / "keys"

    @property
    def questions(self) -> Path:
        return self.root / "data" / "questions.xlsx"

    @property
    def knowledge_base(self) -> Path:
        return self.root / "data" / "knowledge_base.jsonl"

    @property
    def profile(self) -> Path:
        return self.root / "profile.yaml"

    @property
    def prometheus(self) -> Path:
        return self.root / "prometheus"


def set_up(folder: Folder, cluster: Folder, store: Store, conversations: int, seed: int) -> Tenant:
    """All that a run needs; what was set up before stays as it is."""
    tenant = Tenant(folder.root / "tenant")
    if not tenant.profile.exists():
        _make_files(tenant, conversations, seed)
    _install(tenant, cluster, store)
    _upload(tenant, store)
    _start_servers(tenant, folder, cluster, store)
    return tenant


def _make_files(tenant: Tenant, conversations: int, seed: int) -> None:
    write_sample(TENANT, tenant.questions.parent, conversations, seed)
    keys = [str(Path(sys.executable).with_name("qinglan")), "keys", "new", "--folder", str(tenant.keys)]
    done = subprocess.run(keys, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise QinglanError(f"{' '.join(keys)} failed: {done.stderr.strip()}")
    config = load_config(TENANT, "demo", questions=tenant.questions, knowledge_base=tenant.knowledge_base)
    fit_local_reranker(config, RunDir(tenant.root), TENANT, tenant.knowledge_base)
    with atomic_write(tenant.profile) as partial:
        partial.write_text(profile_text((MANIFESTS.parent / "pipelines/configs" / TENANT / "demo.yaml").read_text()))


def profile_text(demo: str) -> str:
    """The demo's profile with what releases and deploys, and lets KFP's cache answer: an input's bytes stay."""
    added = {
        "register": {"store": RELEASES}, "deploy": {"namespace": NAMESPACE, "rollout": ROLLOUT},
        "cluster": {"immutable_inputs": True},
    }  # fmt: skip
    return yaml.safe_dump(merge_settings(yaml.safe_load(demo), added), allow_unicode=True)


def _install(tenant: Tenant, cluster: Folder, store: Store) -> None:
    manifests = tenant.root / "manifests"
    shutil.rmtree(manifests, ignore_errors=True)
    shutil.copytree(MANIFESTS, manifests)
    overlay = manifests / OVERLAY / TENANT
    write_private(overlay / "store.env", store_env(store))
    shutil.copy(overlay / "paid-api.env.example", overlay / "paid-api.env")
    rendered = [it for it in yaml.safe_load_all(kubectl(cluster, "kustomize", str(manifests / OVERLAY))) if it]
    apply(cluster, rendered)
    apply(cluster, key_objects({file.name: file.read_bytes() for file in tenant.keys.iterdir() if file.is_file()}))


def store_env(store: Store) -> str:
    """The Secret qinglan-store: the store twice, for our own steps and for KFP's launcher, which takes an address."""
    url = f"http://{store.endpoint}"
    settings = {
        "QINGLAN_S3_ENDPOINT": url, "AWS_ACCESS_KEY_ID": store.access_key, "AWS_SECRET_ACCESS_KEY": store.secret_key,
        "AWS_REGION": "us-east-1", "AWS_ENDPOINT_URL_S3": url,
    }  # fmt: skip
    return "".join(f"{name}={value}\n" for name, value in settings.items())


def key_objects(files: Mapping[str, bytes]) -> list[Object]:
    """The Secrets of signing keys and the trust policy, as manifests/README.md has them made by hand."""
    secrets = {
        "qinglan-builder-key": ("builder.pem",), "qinglan-release-keys": ("builder.pem", "releaser.pem"),
        "qinglan-rollout-key": ("rollout.pem",),
    }  # fmt: skip
    keys = [
        _named("Secret", name, {file: base64.b64encode(files[file]).decode() for file in content})
        for name, content in secrets.items()
    ]
    return [*keys, _named("ConfigMap", "qinglan-trust", {"trust.yaml": files["trust.yaml"].decode()})]


def _named(kind: str, name: str, data: dict[str, str]) -> Object:
    return {"apiVersion": "v1", "kind": kind, "metadata": {"name": name, "namespace": NAMESPACE}, "data": data}


def _upload(tenant: Tenant, store: Store) -> None:
    from minio import Minio

    client: Any = Minio(store.endpoint, store.access_key, store.secret_key, secure=False)
    if not client.bucket_exists(BUCKET):
        client.make_bucket(BUCKET)
    for file in (tenant.questions, tenant.knowledge_base):
        client.fput_object(BUCKET, file.name, str(file))


def _start_servers(tenant: Tenant, folder: Folder, cluster: Folder, store: Store) -> None:
    """Start the servers that do not run yet; `make kfp-down` ends them with the back end."""
    write_configuration(tenant.prometheus)
    (tenant.root / "gateway.yaml").write_text(
        gateway_settings((MANIFESTS / OVERLAY / TENANT / "gateway.yaml").read_text())
    )
    write_kubeconfig(cluster, "qinglan-rollout", tenant.root / "rollout.kubeconfig", NAMESPACE)
    running = {record.part.name for record in records(folder) if runs(record)}
    with httpx.Client(trust_env=False) as client:
        for part in server_parts(tenant, store):
            if part.name not in running:
                start(folder, part, outlives=True)
                until(f"{part.name} is ready", answering(client, part), folder)
                print(f"         {part.name} listens on {PORTS[part.name]}", flush=True)


def gateway_settings(manifest: str) -> str:
    """The gateway's settings, with this machine for the Services that they name."""
    for service in ("qinglan-teacher", "qinglan-rag"):
        manifest = manifest.replace(f"//{service}:", "//127.0.0.1:")
    return manifest


def server_parts(tenant: Tenant, store: Store) -> list[Part]:
    root, known = tenant.root, f"{TENANT}={tenant.knowledge_base}"
    index = RunDir(root).index
    reranker = index / f"{TENANT}-reranker.json"
    aws = dict(line.split("=", 1) for line in store_env(store).splitlines())
    rollout = {**aws, "KUBECONFIG": str(root / "rollout.kubeconfig"), "QINGLAN_KEYS": str(tenant.keys)}
    return [
        _server("teacher", "standins.teacher", ["--kb", known]),
        _server("rag", "serving.rag", [
            "--kb", known, "--index-root", str(index),
            *(["--reranker", f"{TENANT}={reranker}"] if reranker.exists() else []),
        ]),
        _server("gateway", "serving.gateway", [
            "--config", str(root / "gateway.yaml"), "--journal", str(root / "journal.sqlite"),
            "--retrieval-cache", str(root / "retrievals.sqlite"),
        ], {"QINGLAN_API_KEY": "none"}),
        prometheus_part(tenant.prometheus),
        _server("rollout", "serving.rollout", [
            "--prometheus", PROMETHEUS, "--trust", str(tenant.keys / "trust.yaml"),
            "--look-seconds", str(RECONCILE_SECONDS),
        ], rollout),
    ]  # fmt: skip


def prometheus_part(folder: Path) -> Part:
    """A Prometheus, which scrapes nobody until a canary is played."""
    return Part("prometheus", "prometheus", command_line(folder, PORTS["prometheus"]), {}, f"{PROMETHEUS}/-/ready")


def _server(name: str, module: str, options: list[str], settings: Mapping[str, str] | None = None) -> Part:
    port = PORTS[name]
    arguments = ["-m", module, *options, "--port", str(port)]
    return Part(name, sys.executable, arguments, dict(settings or {}), f"http://127.0.0.1:{port}/healthz")
