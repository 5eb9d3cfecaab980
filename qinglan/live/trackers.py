"""Experiment trackers (TensorBoard, W&B, MLflow), set once per run; each training is named by its run and stage.

    check_trackers(("wandb",), os.environ, has_gateway=False)      # before anything is paid
    with tracked(("tensorboard", "mlflow"), "sft", log, gateway_url) as environment: ...

| tracker | here | on a cluster |
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

from qinglan.errors import ConfigError, OutageError
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
    missing = [package for package in trackers if find_spec(package) is None]
    if missing:
        packages = " ".join(PACKAGES[package] for package in missing)
        raise ConfigError(
            f"trackers names {', '.join(missing)}, which this environment lacks. Install: pip install {packages}"
        )


PACKAGES = {"tensorboard": "tensorboard", "wandb": "wandb", "mlflow": "mlflow-skinny"}


@contextmanager
def tracked(trackers: Collection[str], stage: str, log: Path, gateway_url: str) -> Iterator[dict[str, str]]:
    """Set the trackers' environment variables in this process, and yield them for a training in another process."""
    check_installed(trackers)
    added = tracker_environment(trackers, stage, log, gateway_url, os.environ)
    if added.get(MODE) == "offline" and MODE not in os.environ:
        say(f"[{stage}] W&B: no {KEY} here, so its files stay in the stage's log; `wandb sync` sends them later.")
    if added.get(URI, "").endswith(MLFLOW_PATH):
        check_forwarded(added[URI])
    before = {name: os.environ.get(name) for name in added}
    os.environ.update(added)
    try:
        yield added
    finally:
        _finish_wandb(trackers)
        for name, value in before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value


def tracker_environment(
    trackers: Collection[str], stage: str, log: Path, gateway_url: str, environment: Mapping[str, str]
) -> dict[str, str]:
    """Environment variables for the trackers' clients, without keys, which the training's process inherits."""
    added: dict[str, str] = {}
    if "tensorboard" in trackers:
        folder = str(log / "tensorboard")
        added |= {"TENSORBOARD_DIR": folder, "TENSORBOARD_LOGGING_DIR": folder}
    if "wandb" in trackers:
        added |= {"WANDB_PROJECT": PROJECT, "WANDB_RUN_GROUP": run_id(), "WANDB_JOB_TYPE": stage}
        added |= {
            "WANDB_DIR": str(log),
            MODE: environment.get(MODE) or ("online" if environment.get(KEY) else "offline"),
        }
    if "mlflow" in trackers:
        if not environment.get(URI) and not gateway_url:
            raise ConfigError(
                f"trackers names mlflow, and there is neither {URI} nor a gateway. Set it, or take it out."
            )
        added |= {
            "MLFLOW_EXPERIMENT_NAME": PROJECT,
            URI: environment.get(URI) or gateway_url.rstrip("/") + MLFLOW_PATH,
        }
        if not environment.get(URI):
            added |= without_proxy(gateway_url, environment)
        if outage_seconds():
            added |= MLFLOW_PATIENCE
    return added


def without_proxy(url: str, environment: Mapping[str, str]) -> dict[str, str]:
    """Variables with which MLflow's client connects to the URL's host without a proxy.

    The library requests reads `no_proxy` before `NO_PROXY` (requests.utils.should_bypass_proxies), so both are set.
    """
    before = environment.get("no_proxy") or environment.get("NO_PROXY") or ""
    hosts = ",".join(filter(None, [urlsplit(url).hostname, before]))
    return {"no_proxy": hosts, "NO_PROXY": hosts}


def _finish_wandb(trackers: Collection[str]) -> None:
    """End this process's W&B run, which completes its files, because the stage's log folder is copied next."""
    wandb = sys.modules.get("wandb")
    if "wandb" in trackers and wandb is not None:
        if wandb.run is not None:
            wandb.finish()
        # finish() returns before W&B's own process has written the end of the file.
        # https://docs.wandb.ai/ref/python/sdk/functions/teardown/
        wandb.teardown()


def training_name(stage: str) -> str:
    """Name of a training in its trackers: the run's id and the stage."""
    return f"{run_id()}-{stage}"


def check_forwarded(uri: str) -> None:
    """Check that MLflow answers through the gateway, because hours of training could otherwise not be tracked."""
    import httpx2

    from qinglan.http.http_client import sync_client

    def is_away(error: Exception) -> bool:
        return isinstance(error, httpx2.TransportError)

    retries = Retries(uri, is_away, attempts=1, seconds=outage_seconds())
    try:
        for attempt in retries.attempts():
            with attempt, sync_client(timeout=CHECK_SECONDS) as http:
                answer = http.get(f"{uri}/health")
    except httpx2.HTTPError as error:
        raise OutageError(
            f"{uri}: {error or type(error).__name__}. Is the gateway up? Or take mlflow out."
        ) from error
    retries.answered()
    if answer.status_code >= 400:
        raise ConfigError(f"trackers names mlflow, and {uri} says {answer.status_code}: {answer.text[:300]}")
