"""Trackers of experiments: one setting of a run for all of its trainings, each under the names of run and stage.

    check_trackers(("wandb",), os.environ, has_gateway=False)      # before anything is paid
    with tracked(("tensorboard", "mlflow"), "sft", log, gateway_url) as environment: ...

| tracker | here | on a cluster |
|---|---|---|
| tensorboard | files in the stage's log | the same |
| wandb | WANDB_API_KEY, or WANDB_MODE=offline: files in the stage's log | offline: files, for `wandb sync` |
| mlflow | MLFLOW_TRACKING_URI | through the run's gateway, which has the address and the token |

W&B does not go through the gateway: its client sends files to addresses of another host, which its server names.
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
"""The path under which a gateway forwards to MLflow."""

PROJECT = "qinglan"
URI, KEY, MODE = "MLFLOW_TRACKING_URI", "WANDB_API_KEY", "WANDB_MODE"
CHECK_SECONDS = 20.0

MLFLOW_PATIENCE = {"MLFLOW_HTTP_REQUEST_MAX_RETRIES": "9", "MLFLOW_HTTP_REQUEST_BACKOFF_FACTOR": "30"}
"""Retries of MLflow's client: at once, after one minute, then seven times after two, which is 15 minutes.

A step on a cluster waits that long for its gateway. MLflow's own settings give four minutes, then the training fails.
https://mlflow.org/docs/latest/api_reference/python_api/mlflow.environment_variables.html
"""


def check_trackers(trackers: Collection[str], environment: Mapping[str, str], gateway_has_mlflow: bool) -> None:
    """Refuse trackers that have no key or address here, before anything is paid."""
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
    """Refuse trackers whose package this environment lacks; the images of trainings have them all."""
    missing = [package for package in trackers if find_spec(package) is None]
    if missing:
        packages = " ".join(PACKAGES[package] for package in missing)
        raise ConfigError(
            f"trackers names {', '.join(missing)}, which this environment lacks. Install: pip install {packages}"
        )


PACKAGES = {"tensorboard": "tensorboard", "wandb": "wandb", "mlflow": "mlflow-skinny"}


@contextmanager
def tracked(trackers: Collection[str], stage: str, log: Path, gateway_url: str) -> Iterator[dict[str, str]]:
    """Set the trackers' environment for a training in this process, and yield it for a process elsewhere."""
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
    """Environment variables of the trackers' own clients, without keys, which a process inherits."""
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
    """Variables by which MLflow's client reaches this host without the environment's proxy.

    requests reads the lower-case one first (requests.utils.should_bypass_proxies).
    """
    before = environment.get("no_proxy") or environment.get("NO_PROXY") or ""
    hosts = ",".join(filter(None, [urlsplit(url).hostname, before]))
    return {"no_proxy": hosts, "NO_PROXY": hosts}


def _finish_wandb(trackers: Collection[str]) -> None:
    """End a W&B run of this process: its files are whole only then, and the stage's log is copied next."""
    wandb = sys.modules.get("wandb")
    if "wandb" in trackers and wandb is not None:
        if wandb.run is not None:
            wandb.finish()
        # finish() returns before W&B's own process has written the end of the file.
        # https://docs.wandb.ai/ref/python/sdk/functions/teardown/
        wandb.teardown()


def training_name(stage: str) -> str:
    """The name of a training at its trackers: run and stage."""
    return f"{run_id()}-{stage}"


def check_forwarded(uri: str) -> None:
    """Check that the gateway forwards to an MLflow that answers: hours of training would otherwise not be tracked."""
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
