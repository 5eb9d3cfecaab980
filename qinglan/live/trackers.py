"""Connects trainings to experiment trackers (TensorBoard, W&B, MLflow), where run and stage name each training.

    check_trackers(("wandb",), os.environ, gateway_has_mlflow=False)      # before anything is paid
    with tracked(("tensorboard", "mlflow"), "sft", log, gateway_url) as environment: ...

| tracker | on one machine | on a cluster |
|---|---|---|
| tensorboard | files in the stage's log | the same |
| wandb | WANDB_API_KEY, or WANDB_MODE=offline: files in the stage's log | offline: files, for `wandb sync` |
| mlflow | MLFLOW_TRACKING_URI | through the run's gateway, which has the address and the token |

W&B does not use the gateway, because its client also sends files to other hosts, which W&B's server names.
"""

import os
import sys
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

from qinglan.errors import ConfigError
from qinglan.http.outages import Retries, outage_seconds
from qinglan.run_id import run_id
from qinglan.terminal import say

Tracker = Literal["tensorboard", "wandb", "mlflow"]

MLFLOW_PATH = "/trackers/mlflow"
"""Path of a gateway under which it forwards requests to MLflow."""

PROJECT = "qinglan"
URI, KEY, MODE = "MLFLOW_TRACKING_URI", "WANDB_API_KEY", "WANDB_MODE"
CHECK_SECONDS = 20.0

MLFLOW_PATIENCE = {"MLFLOW_HTTP_REQUEST_MAX_RETRIES": "9", "MLFLOW_HTTP_REQUEST_BACKOFF_FACTOR": "30"}
"""Settings with which MLflow's client retries for 15 minutes: at once, after one minute, then seven times after two.

A step on a cluster waits this long for its gateway. With MLflow's defaults, a training fails after four minutes.
https://mlflow.org/docs/latest/api_reference/python_api/mlflow.environment_variables.html
"""


def check_trackers(trackers: Collection[str], environment: Mapping[str, str], gateway_has_mlflow: bool) -> None:
    """Raise a ConfigError if a tracker has no key or address in the environment. Called before anything is paid."""
    if "wandb" in trackers and environment.get(MODE) not in ("offline", "disabled") and not environment.get(KEY):
        raise ConfigError(
            f"trackers names wandb, and {KEY} is not set. Set it, or {MODE}=offline to keep the run's files beside "
            "the log, or take wandb out."
        )
    if "mlflow" in trackers and not environment.get(URI) and not gateway_has_mlflow:
        raise ConfigError(
            f"trackers names mlflow, and {URI} is not set. Set it, or give the "
            "gateway `mlflow: {base_url: ...}`, or take mlflow out."
        )


def check_installed(trackers: Collection[str]) -> None:
    """Raise a ConfigError if a tracker's package is not installed; the training images have all of them."""
    if missing := [tracker for tracker in trackers if find_spec(tracker) is None]:
        packages = " ".join(missing).replace("mlflow", "mlflow-skinny")
        raise ConfigError(
            f"trackers names {', '.join(missing)}, which this environment lacks. Install: pip install {packages}"
        )


@contextmanager
def tracked(trackers: Collection[str], stage: str, log: Path, gateway_url: str) -> Iterator[dict[str, str]]:
    """Set the trackers' environment variables during the block, and yield them for a training in another process."""
    check_installed(trackers)
    added = tracker_environment(trackers, stage, log, gateway_url, os.environ)
    if added.get(MODE) == "offline" and MODE not in os.environ:
        say(f"[{stage}] W&B: no {KEY} here, so its files stay in the stage's log; `wandb sync` sends them later.")
    if added.get(URI, "").endswith(MLFLOW_PATH):
        check_forwarded(added[URI])
    before = {name: os.environ[name] for name in added if name in os.environ}
    os.environ.update(added)
    try:
        yield added
    finally:
        wandb = sys.modules.get("wandb")
        if "wandb" in trackers and wandb is not None:
            if wandb.run is not None:
                wandb.finish()
            # The log's folder is copied next, but finish() returns before W&B's own process has written the file's
            # end. https://docs.wandb.ai/ref/python/sdk/functions/teardown/
            wandb.teardown()
        for name in added:
            del os.environ[name]
        os.environ.update(before)


def tracker_environment(
    trackers: Collection[str], stage: str, log: Path, gateway_url: str, environment: Mapping[str, str]
) -> dict[str, str]:
    """Return the environment variables for the trackers' clients. Keys are not included, since the training's process
    inherits them."""
    added: dict[str, str] = {}
    if "tensorboard" in trackers:
        folder = str(log / "tensorboard")
        added |= {"TENSORBOARD_DIR": folder, "TENSORBOARD_LOGGING_DIR": folder}
    if "wandb" in trackers:
        mode = environment.get(MODE) or ("online" if environment.get(KEY) else "offline")
        added |= {"WANDB_PROJECT": PROJECT, "WANDB_RUN_GROUP": run_id(), "WANDB_JOB_TYPE": stage}
        added |= {"WANDB_DIR": str(log), MODE: mode}
    if "mlflow" in trackers:
        uri = environment.get(URI) or gateway_url.rstrip("/") + MLFLOW_PATH
        added |= {"MLFLOW_EXPERIMENT_NAME": PROJECT, URI: uri}
        if not environment.get(URI):
            # requests reads `no_proxy` before `NO_PROXY` (requests.utils.should_bypass_proxies), so both are set.
            direct = environment.get("no_proxy") or environment.get("NO_PROXY") or ""
            hosts = ",".join(filter(None, [urlsplit(gateway_url).hostname, direct]))
            added |= {"no_proxy": hosts, "NO_PROXY": hosts}
        if outage_seconds():
            added |= MLFLOW_PATIENCE
    return added


def training_name(stage: str) -> str:
    """Return the name of a training in its trackers: the run's id and the stage."""
    return f"{run_id()}-{stage}"


def check_forwarded(uri: str) -> None:
    """Check that MLflow answers through the gateway. Otherwise hours of training could pass without being tracked."""
    import httpx2

    from qinglan.http.http_client import outages, sync_client

    def is_away(error: Exception) -> bool:
        return isinstance(error, httpx2.TransportError)

    retries = Retries(uri, is_away, attempts=1, seconds=outage_seconds())
    with outages(uri, "Is the gateway up? Or take mlflow out."):
        for attempt in retries.attempts():
            with attempt, sync_client(timeout=CHECK_SECONDS) as http:
                answer = http.get(f"{uri}/health")
    retries.answered()
    if answer.status_code >= 400:
        raise ConfigError(f"trackers names mlflow, and {uri} says {answer.status_code}: {answer.text[:300]}")
