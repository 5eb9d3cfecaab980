"""Start Ray on this node, and wait until all nodes have joined it."""

import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from qinglan.errors import ConfigError, TrainingError
from qinglan.processes.services import free_port

TOKEN = "RAY_AUTH_TOKEN"
MAX_RAY_STARTS = 5
"""Number of attempts to start Ray. Ray ends itself if its agents do not start within 15 s, as on a busy machine."""

NO_DRAIN_ENVIRONMENT = {"RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S": "0"}
"""Variables that switch off Ray's graceful drain: it would wait 30 s to move work to other nodes, which also end."""

RAY_START_COMMAND = (sys.executable, "-m", "ray.scripts.scripts", "start", "--disable-usage-stats", "--block")
POLL_SECONDS = 0.5


def shared_token(environment: Mapping[str, str]) -> str:
    """Read the token that all nodes share, so that no other program can connect. Raises a ConfigError without one."""
    if environment.get("RAY_AUTH_MODE") != "token" or not environment.get(TOKEN):
        raise ConfigError(
            f"A Ray cluster over several pods needs RAY_AUTH_MODE=token and the same {TOKEN} in each: "
            "without them, anybody who reaches a pod could run code in it. The stage puts both into the job's "
            "command."
        )
    return environment[TOKEN]


def head_command(address: str, port: int, name: str, gpus: int, folder: Path) -> list[str]:
    words = ["--head", f"--port={port}", f"--temp-dir={folder}", f"--ray-client-server-port={free_port()}"]
    words += ["--include-dashboard=false", "--no-monitor"]  # neither a dashboard nor an autoscaler is needed
    return [*RAY_START_COMMAND, *words, *_node(address, name, gpus)]


def worker_command(head: str, address: str, name: str, gpus: int) -> list[str]:
    return [*RAY_START_COMMAND, f"--address={head}", *_node(address, name, gpus)]


def _node(address: str, name: str, gpus: int) -> list[str]:
    return [f"--node-ip-address={address}", f"--node-name={name}", f"--num-gpus={gpus}"]


def start_ray(command: list[str], environment: Mapping[str, str]) -> "subprocess.Popen[bytes]":
    """Start Ray in a separate process group, so that a signal to this process's group does not end it too early."""
    variables = {**environment, **NO_DRAIN_ENVIRONMENT}
    return subprocess.Popen(command, env=variables, stdout=subprocess.DEVNULL, process_group=0)


class StartDeadline:
    """Time limit for waiting. Each pause first calls `check`, which raises if waiting longer is pointless."""

    def __init__(self, seconds: float, check: Callable[[], None]) -> None:
        self._until, self._check = time.monotonic() + seconds, check

    def pause(self, waiting_for: str) -> None:
        self._check()
        if time.monotonic() > self._until:
            raise TrainingError(f"Ray's {waiting_for} did not come in time. Its own words stand above.")
        time.sleep(POLL_SECONDS)


def wait_for_ray_nodes(address: str, nodes: int, clock: StartDeadline, invite: Callable[[], None]) -> None:
    """Wait until Ray's head runs, call `invite` so that the workers start, and wait until all nodes have joined.

    A worker that started before the head would find no head, and end.
    """
    # ray.init installs its own SIGTERM handler; ours is put back afterwards.
    # https://docs.ray.io/en/latest/ray-core/api/doc/ray.init.html
    sigterm_handler = signal.getsignal(signal.SIGTERM)
    ray = _connected(address, clock)
    try:
        while _alive_node_count(ray) < 1:
            clock.pause("head")
        invite()
        while (alive := _alive_node_count(ray)) < nodes:
            clock.pause(f"other nodes ({alive} of {nodes} are there)")
    finally:
        ray.shutdown()
        signal.signal(signal.SIGTERM, sigterm_handler)


def _connected(address: str, clock: StartDeadline) -> Any:
    host, _, port = address.rpartition(":")
    while not _is_port_open(host, int(port)):
        clock.pause("head")
    import ray

    while True:
        try:
            ray.init(address=address, log_to_driver=False, logging_level="error")
        except Exception:  # errors of many kinds, while the head is starting
            ray.shutdown()
            clock.pause("head")
        else:
            return ray


def _alive_node_count(ray: Any) -> int:
    return sum(bool(node["Alive"]) for node in ray.nodes())


def _is_port_open(host: str, port: int) -> bool:
    try:
        socket.create_connection((host, port), timeout=1.0).close()
    except OSError:
        return False
    return True
