"""python -m tests.rehearsal.trackers [sft] [ppo] [style]      what each tracker gets of the smallest trainings

Each training runs in its image's environment, with TensorBoard, W&B offline, and MLflow through a real gateway before
a real server, which uv runs in an environment of its own. It prints what arrived; exit code 1 where that is nothing.
"""

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import httpx
import orjson

from pipelines.execute.environments.environments import ROOT, make_environment
from qinglan.errors import OutageError
from qinglan.files.scratch import SCRATCH_VARIABLE
from qinglan.live.trackers import PROJECT, training_name
from qinglan.processes.services import free_port, run_service, stop_process
from qinglan.run_id import RUN_VARIABLE
from tests.rehearsal.tracked_training import TRAININGS
from tests.servers.echo_servers import gateway_config

MLFLOW = "mlflow==3.17.2"
"""The version of mlflow-skinny in the images' locks."""

READY_SECONDS = 600.0
API = "/api/2.0/mlflow"


class Arrived(NamedTuple):
    """Calls that the trackers got from a training."""

    training: str
    mlflow_status: str
    mlflow_metrics: int
    tensorboard_bytes: int
    wandb_bytes: int


@contextmanager
def mlflow_server(folder: Path) -> Iterator[str]:
    """The address of an MLflow server with an empty store."""
    address = f"http://127.0.0.1:{(port := free_port())}"
    server = ["mlflow", "server", "--port", str(port), "--workers", "1"]
    store = ["--backend-store-uri", f"sqlite:///{folder}/mlflow.db", "--artifacts-destination", f"{folder}/artifacts"]
    with (folder / "mlflow.log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "uv", "tool", "run", "--from", MLFLOW, *server, *store],
            stdout=log, stderr=log, start_new_session=True,
        )  # fmt: skip
    try:
        _await_health(process, address, folder / "mlflow.log")
        yield address
    finally:
        stop_process(process)


def _await_health(process: "subprocess.Popen[bytes]", address: str, log: Path) -> None:
    until = time.monotonic() + READY_SECONDS
    while time.monotonic() < until and process.poll() is None:
        try:
            if httpx.get(f"{address}/health", trust_env=False).status_code == 200:
                return
        except httpx.TransportError:
            time.sleep(0.5)
    raise OutageError(f"{address}: MLflow's server has not started.\n{log.read_text()[-2000:]}")


@contextmanager
def gateway(mlflow: str, folder: Path) -> Iterator[str]:
    """The address of a gateway that forwards to it."""
    config = gateway_config("http://127.0.0.1:9", mlflow={"base_url": mlflow})
    (folder / "gateway.json").write_bytes(orjson.dumps(config.model_dump(mode="json")))
    journal = ["--journal", str(folder / "journal.sqlite"), "--retrieval-cache", str(folder / "retrievals.sqlite")]
    settings = ["--config", str(folder / "gateway.json"), "--port", "0", *journal]
    with run_service("serving.gateway", settings, folder / "gateway.log") as url:
        yield url


def train(name: str, folder: Path, gateway_url: str) -> None:
    """Run the training to its end in the environment of its image."""
    environment = {
        **os.environ, RUN_VARIABLE: "trackers", SCRATCH_VARIABLE: str(folder / "scratch"), "WANDB_MODE": "offline",
        "QINGLAN_CACHE": str(folder / "cache"),
    }  # fmt: skip
    environment.pop("MLFLOW_TRACKING_URI", None)
    python = make_environment(name, cpu=True)
    command = [str(python), "-m", "tests.rehearsal.tracked_training", name, str(folder), gateway_url]
    subprocess.run(command, cwd=ROOT, env=environment, check=True)


def arrived(name: str, folder: Path, mlflow: str) -> Arrived:
    """Read the trackers' stores."""
    run = _run_of(training_name(name), mlflow)
    values = run.get("data", {}).get("metrics", ())
    sizes = [
        sum(file.stat().st_size for file in (folder / "log").glob(pattern))
        for pattern in ("tensorboard/events.out.tfevents*", "wandb/offline-run-*/*.wandb")
    ]
    return Arrived(name, run.get("info", {}).get("status", "none"), len(values), *sizes)


def _run_of(name: str, mlflow: str) -> dict[str, Any]:
    """MLflow's run of this name; empty where there is none."""
    with httpx.Client(base_url=mlflow + API, trust_env=False) as http:
        result = http.get("/experiments/get-by-name", params={"experiment_name": PROJECT})
        if result.status_code == 404:
            return {}
        body = {"experiment_ids": [result.raise_for_status().json()["experiment"]["experiment_id"]]}
        runs = http.post("/runs/search", json=body).raise_for_status().json().get("runs", [])
    return next((run for run in runs if run["info"]["run_name"] == name), {})


def main(names: Sequence[str]) -> int:
    os.environ[RUN_VARIABLE] = "trackers"
    rows: list[Arrived] = []
    with TemporaryDirectory() as root, mlflow_server(Path(root)) as mlflow, gateway(mlflow, Path(root)) as url:
        for name in names:
            (folder := Path(root) / name).mkdir()
            train(name, folder, url)
            rows.append(arrived(name, folder, mlflow))
    for row in rows:
        print(
            f"{row.training}: MLflow {row.mlflow_status}, {row.mlflow_metrics} metrics; "
            f"TensorBoard {row.tensorboard_bytes:,} bytes; W&B offline {row.wandb_bytes:,} bytes"
        )
    return 0 if all(row.mlflow_status == "FINISHED" and all(row[2:]) for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:] or list(TRAININGS)))
