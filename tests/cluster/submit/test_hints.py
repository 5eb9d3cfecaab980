"""Every command that the preflight prints is run by a shell as it is printed, against a real API server."""

import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from kubernetes import client

from pipelines.checks.checks import Check
from pipelines.checks.cluster import cluster_reader
from pipelines.checks.cluster.cluster_checks import check_requirements
from pipelines.checks.cluster.cluster_reader import read_cluster
from pipelines.checks.cluster.requirements import (
    ImportedInputs,
    NodeRequest,
    ReleaseStore,
    RequiredObject,
    Requirements,
    RolloutTarget,
)
from qinglan.sizing.constants import GIB
from tests.cluster.build.binaries import binary
from tests.cluster.kubectl import Kubectl
from tests.cluster.plane.cluster import Cluster
from tests.cluster.waiting import until
from tests.kfp.graphs import GPU

ROOT = Path(__file__).parents[3]
RUNNER, SECRET, SCRATCH = "pipeline-runner", "qinglan-store", "qinglan-scratch"
NOTHING = Requirements((), (), (), RUNNER)
JOB = NodeRequest(("train",), {GPU: 8.0}, 1, {}, True)
INPUTS = ImportedInputs(("s3://data/q.xlsx",), ("generate",), SECRET)
RELEASES = ReleaseStore("s3://qinglan/releases", ("register",), SECRET)
WHOLE = {
    "AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b", "AWS_REGION": "us-east-1",
    "AWS_ENDPOINT_URL_S3": "http://10.96.0.20:9000", "QINGLAN_S3_ENDPOINT": "http://10.96.0.20:9000",
}  # fmt: skip


class Tenant(NamedTuple):
    """A namespace, and the clients that furnish it."""

    namespace: str
    core: Any
    storage: Any

    def account(self, **settings: Any) -> None:
        self.core.create_namespaced_service_account(self.namespace, {"metadata": {"name": RUNNER}, **settings})

    def secret(self, name: str, values: dict[str, str]) -> None:
        self.core.create_namespaced_secret(self.namespace, {"metadata": {"name": name}, "stringData": values})

    def service(self, name: str) -> None:
        port = {"port": 9000}
        self.core.create_namespaced_service(self.namespace, {"metadata": {"name": name}, "spec": {"ports": [port]}})

    def quota(self, hard: str) -> None:
        quota = {"metadata": {"name": "gpus"}, "spec": {"hard": {f"requests.{GPU}": hard}}}
        self.core.create_namespaced_resource_quota(self.namespace, quota)

    def claim(self, storage_class: str = "") -> None:
        spec = {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1Gi"}}}
        claim = {"metadata": {"name": SCRATCH}, "spec": {**spec, "storageClassName": storage_class}}
        self.core.create_namespaced_persistent_volume_claim(self.namespace, claim)

    def claim_that_grows(self) -> None:
        """A bound claim of a class that allows it; the request is taken, and nobody here enlarges the volume."""
        name = self.namespace
        self.storage.create_storage_class(
            {"metadata": {"name": name}, "provisioner": "example.com/none", "allowVolumeExpansion": True}
        )
        owner = {"namespace": self.namespace, "name": SCRATCH}
        volume = {
            "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteMany"], "storageClassName": name,
            "claimRef": owner, "hostPath": {"path": "/nowhere"},
        }  # fmt: skip
        self.core.create_persistent_volume({"metadata": {"name": name}, "spec": volume})
        self.claim(name)
        read = self.core.read_namespaced_persistent_volume_claim
        until(lambda: read(SCRATCH, self.namespace).status.phase == "Bound", "the claim is bound")


class Hint(NamedTuple):
    """A state of the namespace, what the preflight finds there, and what becomes of it by the printed command."""

    finding: str
    needs: Requirements = NOTHING
    prepare: Callable[[Tenant], Any] = lambda tenant: None
    mends: bool = True
    """After the command the finding is gone; False for a command that only shows, or that a person goes on with."""

    adds: str = ""
    """Options after the command as printed."""


def needing(kind: Any, name: str, *keys: str) -> Requirements:
    return NOTHING._replace(objects=(RequiredObject(kind, name, frozenset(keys), ("train",)),))


def without_key(tenant: Tenant) -> None:
    tenant.secret("qinglan-release-keys", {"builder.pem": "x"})


def without(*lacking: str, **more: str) -> Callable[[Tenant], None]:
    return lambda tenant: tenant.secret(SECRET, {k: v for k, v in {**WHOLE, **more}.items() if k not in lacking})


HINTS = {
    "an account": Hint("ServiceAccount pipeline-runner is not", needing("ServiceAccount", RUNNER)),
    "signing keys": Hint(
        "Secret qinglan-release-keys is not",
        needing("Secret", "qinglan-release-keys", "builder.pem", "releaser.pem"),
    ),
    "a Secret without a key": Hint(
        "has no key releaser.pem",
        needing("Secret", "qinglan-release-keys", "builder.pem", "releaser.pem"),
        without_key,
    ),
    "the trust policy": Hint(
        "ConfigMap qinglan-trust is not", needing("ConfigMap", "qinglan-trust", "trust.yaml")
    ),
    "a claim": Hint(f"PersistentVolumeClaim {SCRATCH} is not", needing("PersistentVolumeClaim", SCRATCH)),
    "a claim too small": Hint(
        f"PersistentVolumeClaim {SCRATCH} in namespace", needing("PersistentVolumeClaim", SCRATCH),
        Tenant.claim_that_grows, mends=False,
    ),
    "too few nodes": Hint(
        "train wants a node", NOTHING._replace(machines=(JOB._replace(asks={GPU: 64.0}),)), mends=False
    ),
    "a quota too small": Hint(
        "quota gpus", NOTHING._replace(machines=(JOB,)), lambda tenant: tenant.quota("4"), mends=False
    ),
    "rights to launch jobs": Hint(
        "train would fail", NOTHING._replace(machines=(JOB,)), lambda tenant: tenant.account()
    ),
    "rights of any step": Hint("KFP's driver", prepare=lambda tenant: tenant.account()),
    "rights on rollouts": Hint("deploy would fail", prepare=lambda tenant: tenant.account()),
    "a cluster that knows no rollouts": Hint("does not know modelrollouts", mends=False, adds=" --dry-run=server"),
    "no Secret of the store, for inputs": Hint(
        f"Secret {SECRET} is not in namespace", NOTHING._replace(inputs=(INPUTS,))
    ),
    "no key for inputs": Hint(
        "has no AWS_REGION", NOTHING._replace(inputs=(INPUTS,)), without("AWS_REGION")
    ),
    "no Secret of the store, for releases": Hint(
        f"Secret {SECRET} is not in namespace", NOTHING._replace(releases=(RELEASES,))
    ),
    "no address of the store of releases": Hint(
        "has no QINGLAN_S3_ENDPOINT", NOTHING._replace(releases=(RELEASES,)), without("QINGLAN_S3_ENDPOINT")
    ),
}  # fmt: skip


class Shell:
    """A person's shell: the cluster's kubectl, an editor that changes nothing, the repository as its folder."""

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        (folder / "kubectl").symlink_to(binary("kubectl"))
        self._environment = {
            **os.environ, "PATH": f"{folder}:{os.environ['PATH']}", "KUBECONFIG": str(cluster.kubeconfig),
            "KUBE_EDITOR": "true",
        }  # fmt: skip

    def __call__(self, command: str) -> None:
        done = subprocess.run(
            ["bash", "-c", command], cwd=ROOT, env=self._environment, text=True, capture_output=True, timeout=120
        )
        assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"


@pytest.mark.parametrize("hint", HINTS.values(), ids=HINTS)
def test_a_printed_command_is_accepted_and_does_what_it_is_printed_for(
    hint: Hint, cluster: Cluster, api: Kubectl, namespace: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    admin = cluster.admin()
    hint.prepare(Tenant(namespace, client.CoreV1Api(admin), client.StorageV1Api(admin)))
    needs = hint.needs
    if "rollouts" in hint.finding or "deploy" in hint.finding:
        needs = needs._replace(rollouts=(RolloutTarget(namespace, ("deploy",)),))
    if "does not know" in hint.finding:
        monkeypatch.setattr(cluster_reader, "ROLLOUTS_API", "/apis/qinglan.example/v1")  # a real 404

    def findings() -> list[Check]:
        snapshot = read_cluster(cluster.admin(), needs, namespace)
        checks = check_requirements(needs, snapshot, {SCRATCH: 2.0 * GIB})
        return [check for check in checks if hint.finding in check.what]

    [finding] = findings()
    Shell(cluster, tmp_path)(f"{finding.command}{hint.adds}")

    if hint.mends:
        until(lambda: findings() == [], f"the command has mended: {finding.what}")
