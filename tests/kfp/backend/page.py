"""KFP's own page beside the back end, built from the same source, for people.

    python -m tests.kfp.backend page

A login and Kubeflow's dashboard stand in front of it in an installation. Two changes stand for them: every request
is one person's, and the profile's namespace is the chosen one.
"""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx

from qinglan.errors import ConfigError
from qinglan.files.files import atomic_folder
from tests.cluster.build.binaries import one_builder
from tests.cluster.plane.processes import Folder, Part, answering, records, runs, start, until
from tests.kfp.backend.build import Dist, run
from tests.kfp.backend.cluster import running_cluster, store_of, write_kubeconfig
from tests.kfp.backend.command_lines import HTTP, LOOPBACK, PAGE, USER_HEADER
from tests.kfp.backend.objects import BUCKET, NAMESPACE, PERSON, Store
from tests.kfp.backend.source import Change, change

ACCOUNT = "ml-pipeline-ui"
MISSING = "fs"
"""An empty package that holds a name against misuse; some mirrors of npm lack it, and nothing imports it."""

CHANGES = (
    Change("server/app.ts", "this.app.listen(port, () =>", "this.app.listen(Number(port), '127.0.0.1', () =>"),
    Change(
        "server/app.ts",
        "  const app: Application = express();\n",
        "  const app: Application = express();\n"
        "  app.use((req, _res, next) => {\n"
        f"    req.headers['{USER_HEADER}'] = '{PERSON}';\n"
        "    next();\n"
        "  });\n",
    ),
)
DASHBOARD = """window.centraldashboard = { CentralDashboardEventHandler: { init(connected) {
  const handler = {};
  connected(handler, false);
  handler.onNamespaceSelected(NAMESPACE);
} } };
"""
"""The library of Kubeflow's dashboard that tells the page which namespace is chosen."""


def show_page(folder: Folder, cluster_root: Path, profile: str) -> str:
    """Build the page if need be and start it beside the back end; its address."""
    parts = {record.part.name: record for record in records(folder) if runs(record)}
    cluster = running_cluster(cluster_root)
    dist = Dist(Path(parts["apiserver"].executable).parents[1])
    build_page(dist, profile)
    if "page" not in parts:
        write_kubeconfig(cluster, ACCOUNT, folder.root / "accounts" / ACCOUNT / "config")
        metadata = int(parts["mlmd"].part.arguments[-1])
        part = page_part(folder, dist, store_of(cluster), metadata)
        start(folder, part, outlives=True)
        with httpx.Client(trust_env=False) as client:
            until("KFP's page is ready", answering(client, part), folder)
    return f"http://{LOOPBACK}:{PAGE}"


def page_folder(dist: Dist) -> Path:
    return dist.root / "page"


def node(dist: Dist) -> Path:
    return page_folder(dist) / "node" / "node_modules" / "node" / "bin" / "node"


def build_page(dist: Dist, profile: str) -> None:
    """The page and its server, with the very Node that KFP's source names."""
    target = page_folder(dist)
    with one_builder(dist.root):
        if target.exists():
            return
        if not shutil.which("npm"):
            raise ConfigError("KFP's page is built by npm, and there is none on the PATH. Install Node.js with npm.")
        with atomic_folder(target) as partial:
            shutil.copytree(dist.source / "frontend", partial / "frontend")
            change(partial / "frontend", CHANGES)
            for name in ("package.json", "package-lock.json"):
                _edit(partial / "frontend" / name, without_missing)
            _npm_steps(partial, (partial / "frontend" / ".nvmrc").read_text().strip().removeprefix("v"))
            library = DASHBOARD.replace("NAMESPACE", json.dumps(profile))
            (partial / "frontend" / "build" / "dashboard_lib.bundle.js").write_text(library)


def _npm_steps(root: Path, version: str) -> None:
    front = root / "frontend"
    (root / "node").mkdir()
    quiet = ["--no-audit", "--no-fund"]
    run(["npm", "install", *quiet, f"node@{version}"], root / "node")
    path = str(root / "node" / "node_modules" / "node" / "bin")
    for folder, command in (
        (front, ["npm", "ci", "--ignore-scripts", *quiet]),
        (front / "server", ["npm", "ci", "--ignore-scripts", *quiet]),
        (front, ["npm", "run", "build:tailwind"]),
        (front, ["npx", "vite", "build"]),
        (front / "server", ["npm", "run", "build"]),
    ):
        print(f"[kfp] page: {' '.join(command)}", flush=True)
        run(command, folder, path=path)
    shutil.rmtree(front / "node_modules")


def without_missing(package: dict[str, Any]) -> dict[str, Any]:
    """A package.json or package-lock.json without the empty package."""
    root = package.get("packages", {}).get("", package)
    root["devDependencies"].pop(MISSING, None)
    package.get("packages", {}).pop(f"node_modules/{MISSING}", None)
    return package


def _edit(file: Path, edit: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    file.write_text(json.dumps(edit(json.loads(file.read_text())), indent=2))


def page_part(folder: Folder, dist: Dist, store: Store, metadata_port: int) -> Part:
    host, _, port = store.endpoint.rpartition(":")
    front = page_folder(dist) / "frontend"
    settings = {
        "KUBECONFIG": str(folder.root / "accounts" / ACCOUNT / "config"), "DEPLOYMENT": "KUBEFLOW",
        "FRONTEND_SERVER_NAMESPACE": NAMESPACE, "ENABLE_AUTHZ": "true", "KUBEFLOW_USERID_HEADER": USER_HEADER,
        "KUBEFLOW_USERID_PREFIX": "", "ML_PIPELINE_SERVICE_HOST": LOOPBACK, "ML_PIPELINE_SERVICE_PORT": str(HTTP),
        "METADATA_ENVOY_SERVICE_SERVICE_HOST": LOOPBACK, "METADATA_ENVOY_SERVICE_SERVICE_PORT": str(metadata_port),
        "MINIO_HOST": host, "MINIO_PORT": port, "MINIO_NAMESPACE": "", "MINIO_SSL": "false",
        "MINIO_ACCESS_KEY": store.access_key, "MINIO_SECRET_KEY": store.secret_key, "ARGO_ARCHIVE_LOGS": "true",
        "ARGO_ARCHIVE_BUCKETNAME": BUCKET, "DISABLE_GKE_METADATA": "true",
    }  # fmt: skip
    arguments = [str(front / "server" / "dist" / "server.js"), str(front / "build"), str(PAGE)]
    return Part("page", str(node(dist)), arguments, settings, f"http://{LOOPBACK}:{PAGE}/apis/v2beta1/healthz")
