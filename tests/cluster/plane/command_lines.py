"""How each part of the cluster is called: command lines over plain data, and nothing is started here."""

from pathlib import Path
from typing import NamedTuple

from tests.cluster.plane.ports import Ports
from tests.cluster.plane.processes import Folder, Part

LOOPBACK = "127.0.0.1"
SERVICES = "10.96.0.0/16"
PODS = "10.0.0.0/16"
INIT_CONTAINER = Path(__file__).parents[3] / "manifests" / "training-operator" / "initContainer.yaml"
"""The operator's own has no security context, and Pod Security "restricted" refuses a worker that has it."""


class Keys(NamedTuple):
    """Credentials of the MinIO beside the cluster."""

    user: str
    secret: str


def server(ports: Ports) -> str:
    return f"https://{LOOPBACK}:{ports.apiserver}"


def parts(folder: Folder, ports: Ports, keys: Keys) -> dict[str, Part]:
    result = [
        _etcd(folder, ports), _apiserver(folder, ports), _minio(folder, ports, keys), _controllers(folder, ports),
        _scheduler(folder, ports), _kwok(folder, ports), _kserve(folder, ports), _training(folder, ports),
        _knative(folder),
    ]  # fmt: skip
    return {part.name: part for part in result}


def _etcd(folder: Folder, ports: Ports) -> Part:
    clients, peers = f"http://{LOOPBACK}:{ports.etcd}", f"http://{LOOPBACK}:{ports.etcd_peer}"
    arguments = [
        f"--data-dir={folder.root / 'etcd'}", "--unsafe-no-fsync", "--log-level=warn",
        f"--listen-client-urls={clients}", f"--advertise-client-urls={clients}",
        f"--listen-peer-urls={peers}", f"--initial-advertise-peer-urls={peers}", f"--initial-cluster=default={peers}",
    ]  # fmt: skip
    return Part("etcd", "etcd", arguments, {}, f"{clients}/health")


def _apiserver(folder: Folder, ports: Ports) -> Part:
    pki = folder.pki
    arguments = [
        f"--etcd-servers=http://{LOOPBACK}:{ports.etcd}", f"--bind-address={LOOPBACK}",
        f"--secure-port={ports.apiserver}",
        "--endpoint-reconciler-type=none",  # a loopback address is no legal endpoint of a Service
        f"--tls-cert-file={pki / 'tls.crt'}", f"--tls-private-key-file={pki / 'tls.key'}",
        f"--client-ca-file={pki / 'ca.crt'}", "--authorization-mode=RBAC", "--anonymous-auth=false",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--service-account-key-file={pki / 'sa.pub'}", f"--service-account-signing-key-file={pki / 'sa.key'}",
        f"--service-cluster-ip-range={SERVICES}", "--allow-privileged=true", "--profiling=false",
    ]  # fmt: skip
    settings = {"GOGC": "100"}  # it has the most memory, and with less of it would spend its time on collecting
    return Part("kube-apiserver", "kube-apiserver", arguments, settings, f"{server(ports)}/readyz")


def _minio(folder: Folder, ports: Ports, keys: Keys) -> Part:
    arguments = ["server", "--quiet", f"--address={LOOPBACK}:{ports.minio}"]
    arguments += [f"--console-address={LOOPBACK}:{ports.minio_console}", str(folder.root / "objects")]
    settings = {"MINIO_ROOT_USER": keys.user, "MINIO_ROOT_PASSWORD": keys.secret, "MINIO_UPDATE": "off"}
    ready = f"http://{LOOPBACK}:{ports.minio}/minio/health/ready"
    return Part("minio", "minio", arguments, {**settings, "MINIO_BROWSER": "off"}, ready)


def _controllers(folder: Folder, ports: Ports) -> Part:
    name, pki = "kube-controller-manager", folder.pki
    arguments = [
        f"--kubeconfig={_kubeconfig(folder, name)}", "--leader-elect=false", "--profiling=false",
        f"--bind-address={LOOPBACK}", f"--secure-port={ports.controller_manager}",
        f"--tls-cert-file={pki / 'tls.crt'}", f"--tls-private-key-file={pki / 'tls.key'}",
        f"--service-account-private-key-file={pki / 'sa.key'}", f"--root-ca-file={pki / 'ca.crt'}",
        "--use-service-account-credentials=true",
        "--enable-hostpath-provisioner=true",  # or a pod with a claim would wait for its volume for ever
        "--node-monitor-grace-period=120s",  # a busy machine is no lost node
    ]  # fmt: skip
    return Part(name, name, arguments, {}, f"https://{LOOPBACK}:{ports.controller_manager}/healthz")


def _scheduler(folder: Folder, ports: Ports) -> Part:
    name, pki = "kube-scheduler", folder.pki
    arguments = [
        f"--kubeconfig={_kubeconfig(folder, name)}", "--leader-elect=false", "--profiling=false",
        f"--bind-address={LOOPBACK}", f"--secure-port={ports.scheduler}",
        f"--tls-cert-file={pki / 'tls.crt'}", f"--tls-private-key-file={pki / 'tls.key'}",
    ]  # fmt: skip
    return Part(name, name, arguments, {}, f"https://{LOOPBACK}:{ports.scheduler}/healthz")


def _kwok(folder: Folder, ports: Ports) -> Part:
    arguments = [
        f"--kubeconfig={_kubeconfig(folder, 'kwok')}", f"--config={stages(folder)}",
        "--manage-nodes-with-annotation-selector=kwok.x-k8s.io/node=fake", "--node-lease-duration-seconds=40",
        f"--server-address={LOOPBACK}:{ports.kwok}", f"--node-ip={LOOPBACK}", f"--cidr={PODS}",
    ]  # fmt: skip
    return Part("kwok", "kwok", arguments, {}, f"http://{LOOPBACK}:{ports.kwok}/healthz")


def _kserve(folder: Folder, ports: Ports) -> Part:
    arguments = [
        f"--webhook-port={ports.kserve_webhook}", f"--metrics-addr={LOOPBACK}:{ports.kserve_metrics}",
        f"--health-probe-addr={LOOPBACK}:{ports.kserve_health}",
    ]  # fmt: skip
    settings = {**_manager(folder, "kserve"), "POD_NAMESPACE": "kserve"}
    return Part("kserve", "kserve-manager", arguments, settings, f"http://{LOOPBACK}:{ports.kserve_health}/readyz")


def _training(folder: Folder, ports: Ports) -> Part:
    name = "training-operator"
    arguments = [
        "--enable-scheme=pytorchjob", f"--webhook-server-port={ports.training_webhook}",
        f"--metrics-bind-address={LOOPBACK}:{ports.training_metrics}",
        f"--health-probe-bind-address={LOOPBACK}:{ports.training_health}",
        f"--pytorch-init-container-template-file={INIT_CONTAINER}",
    ]  # fmt: skip
    return Part(name, name, arguments, _manager(folder, name), f"http://{LOOPBACK}:{ports.training_health}/readyz")


def _knative(folder: Folder) -> Part:
    """The reconcilers alone; they listen nowhere, so there is nothing to ask whether they are ready."""
    settings = {
        "KUBECONFIG": _kubeconfig(folder, "knative"), "SYSTEM_NAMESPACE": "knative-serving", "POD_NAME": "knative",
        "CONFIG_LOGGING_NAME": "config-logging", "CONFIG_OBSERVABILITY_NAME": "config-observability",
    }  # fmt: skip
    return Part("knative", "knative-controller", [], settings)


def _manager(folder: Folder, name: str) -> dict[str, str]:
    return {"KUBECONFIG": _kubeconfig(folder, name), "WEBHOOK_CERT_DIR": str(folder.pki)}


def _kubeconfig(folder: Folder, name: str) -> str:
    return str(folder.pki / f"{name}.kubeconfig")


def stages(folder: Folder) -> str:
    """Command of KWOK, which simulates nodes and pods."""
    return str(folder.root / "kwok.yaml")
