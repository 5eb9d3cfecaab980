"""How each part of the back end is called: command lines over plain data, and nothing is started here."""

import sys
from pathlib import Path
from typing import NamedTuple

from tests.cluster.plane.processes import Folder, Part
from tests.kfp.backend.build import Dist
from tests.kfp.backend.objects import BUCKET, MEMBER, NAMESPACE, Store
from tests.kfp.backend.source import TAG

LOOPBACK = "127.0.0.1"
GRPC, HTTP, MLMD, ARGO_HEALTH, PAGE = 8887, 8888, 8080, 6060, 3000
"""KFP's driver and launcher ask the first and the third by these numbers, so a machine has one back end."""

USER_HEADER = "kubeflow-userid"
IMAGES = "local/kfp-{}:" + TAG
REQUEUE = "500ms"
"""Argo looks at a workflow again after ten seconds by default, which makes a run of many short steps slow."""

ACCOUNTS = {
    "apiserver": "ml-pipeline", "workflow-controller": "argo", "persistence-agent": "ml-pipeline-persistenceagent",
    "scheduledworkflow": "ml-pipeline-scheduledworkflow",
}  # fmt: skip
"""The service account that each program acts as, with upstream's own rights."""


class Ports(NamedTuple):
    """Ports that nothing fixes."""

    database: int
    metrics: int
    metadata_web: int


class Setting(NamedTuple):
    """All that the command lines are made of."""

    folder: Folder
    dist: Dist
    ports: Ports
    store: Store
    cluster: Path
    """A kubeconfig of the cluster's administrator, for the process that runs pods in the kubelet's place."""


def kubeconfig(folder: Folder, name: str) -> Path:
    return folder.root / "accounts" / ACCOUNTS[name] / ".kube" / "config"


def agent_token(folder: Folder) -> Path:
    return folder.root / "accounts" / "agent-token"


def member_token(folder: Folder) -> Path:
    """The token of the profile's account, for `qinglan submit`."""
    return folder.root / "token"


def parts(setting: Setting) -> dict[str, Part]:
    each = [
        _mariadb(setting), _mlmd(setting), _apiserver(setting), _workflow_controller(setting), _agent(setting),
        _scheduledworkflow(setting), _pods(setting),
    ]  # fmt: skip
    return {part.name: part for part in each}


def mariadb_libraries(dist: Dist) -> dict[str, str]:
    [folder] = (dist.mariadb / "lib").glob("*-linux-gnu*")
    return {"LD_LIBRARY_PATH": str(folder)}


def _mariadb(setting: Setting) -> Part:
    root, base = setting.folder.root, setting.dist.mariadb
    arguments = [
        "--no-defaults", f"--basedir={base}", f"--datadir={root / 'database'}", "--user=root",
        f"--bind-address={LOOPBACK}", f"--port={setting.ports.database}", f"--socket={root / 'database.sock'}",
        "--innodb-flush-log-at-trx-commit=0", "--character-set-server=utf8mb4",
    ]  # fmt: skip
    return Part("mariadb", str(base / "sbin" / "mariadbd"), arguments, mariadb_libraries(setting.dist))


def _mlmd(setting: Setting) -> Part:
    program = Path(__file__).parent / "mlmd_server.py"
    arguments = [str(program), str(setting.folder.root / "mlmd.sqlite"), str(MLMD), str(setting.ports.metadata_web)]
    return Part("mlmd", str(setting.dist.mlmd_python), arguments, {})


def _apiserver(setting: Setting) -> Part:
    root, store = setting.folder.root, setting.store
    host, _, port = store.endpoint.rpartition(":")
    arguments = [
        f"--config={root / 'config'}", "--sampleconfig=", f"--rpcPortFlag=:{GRPC}",
        f"--httpPortFlag={LOOPBACK}:{HTTP}", "--logtostderr=true",
    ]  # fmt: skip
    settings = {
        **_account(setting, "apiserver"), "POD_NAMESPACE": NAMESPACE, "CLUSTER_DOMAIN": "cluster.local",
        # As upstream's ConfigMap pipeline-api-server-config and pipeline-install-config have them.
        "MULTIUSER": "true", "DEFAULTPIPELINERUNNERSERVICEACCOUNT": MEMBER, "KUBEFLOW_USERID_HEADER": USER_HEADER,
        "KUBEFLOW_USERID_PREFIX": "", "AUTO_UPDATE_PIPELINE_DEFAULT_VERSION": "true", "PUBLISH_LOGS": "true",
        "PIPELINE_LOG_LEVEL": "1", "DB_DRIVER_NAME": "mysql", "DBCONFIG_CONMAXLIFETIME": "120s",
        "DBCONFIG_MYSQLCONFIG_HOST": LOOPBACK, "DBCONFIG_MYSQLCONFIG_PORT": str(setting.ports.database),
        "DBCONFIG_MYSQLCONFIG_USER": "root", "DBCONFIG_MYSQLCONFIG_PASSWORD": "", "OBJECTSTORECONFIG_HOST": host,
        "OBJECTSTORECONFIG_PORT": port, "OBJECTSTORECONFIG_SECURE": "false", "OBJECTSTORECONFIG_BUCKETNAME": BUCKET,
        "OBJECTSTORECONFIG_REGION": "us-east-1", "OBJECTSTORECONFIG_ACCESSKEY": store.access_key,
        "OBJECTSTORECONFIG_SECRETACCESSKEY": store.secret_key,
        # Without an address of this old service it ends at its start.
        "ML_PIPELINE_VISUALIZATIONSERVER_SERVICE_HOST": LOOPBACK, "ML_PIPELINE_VISUALIZATIONSERVER_SERVICE_PORT": "1",
        "V2_DRIVER_IMAGE": IMAGES.format("driver"), "V2_LAUNCHER_IMAGE": IMAGES.format("launcher"),
    }  # fmt: skip
    ready = f"http://{LOOPBACK}:{HTTP}/apis/v2beta1/healthz"
    return Part("apiserver", str(setting.dist.program("apiserver")), arguments, settings, ready)


def _workflow_controller(setting: Setting) -> Part:
    name = "workflow-controller"
    arguments = ["--kubeconfig", str(kubeconfig(setting.folder, name)), "--executor-image", "local/argoexec"]
    settings = {**_account(setting, name), "LEADER_ELECTION_DISABLE": "true", "DEFAULT_REQUEUE_TIME": REQUEUE}
    return Part(name, str(setting.dist.program(name)), arguments, settings)


def _agent(setting: Setting) -> Part:
    name = "persistence-agent"
    arguments = [
        f"--kubeconfig={kubeconfig(setting.folder, name)}", "--namespace=", f"--mlPipelineAPIServerName={LOOPBACK}",
        "--ttlSecondsAfterWorkflowFinish=86400", "--numWorker=2", "--logLevel=info",
    ]  # fmt: skip
    settings = {
        **_account(setting, name), "POD_NAMESPACE": NAMESPACE, "AGENT_TOKEN_FILE": str(agent_token(setting.folder)),
    }  # fmt: skip
    return Part(name, str(setting.dist.program(name)), arguments, settings)


def _scheduledworkflow(setting: Setting) -> Part:
    name = "scheduledworkflow"
    arguments = [
        f"--kubeconfig={kubeconfig(setting.folder, name)}", "--namespace=", f"--mlPipelineAPIServerName={LOOPBACK}",
        f"--userIdentityHeader={USER_HEADER}",
        f"--userIdentityValue=system:serviceaccount:{NAMESPACE}:{ACCOUNTS[name]}",
        f"--metricsPort={setting.ports.metrics}",
    ]  # fmt: skip
    settings = {**_account(setting, name), "POD_NAMESPACE": NAMESPACE, "CRON_SCHEDULE_TIMEZONE": "UTC"}
    return Part(name, str(setting.dist.program(name)), arguments, settings)


def _pods(setting: Setting) -> Part:
    arguments = ["-m", "tests.kfp.backend.pods", str(setting.folder.root / "pods"), str(setting.dist.root / "bin")]
    settings = {
        "KUBECONFIG": str(setting.cluster), "PYTHONPATH": str(Path(__file__).parents[3]),
        "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    }  # fmt: skip
    return Part("pods", sys.executable, arguments, settings)


def _account(setting: Setting, name: str) -> dict[str, str]:
    """Some of these programs read KUBECONFIG, some ~/.kube/config."""
    path = kubeconfig(setting.folder, name)
    return {"HOME": str(path.parents[1]), "KUBECONFIG": str(path)}
