"""`ray start`, and what Ray itself says of its nodes."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from qinglan.errors import ConfigError, TrainingError

TOKEN = "RAY_AUTH_TOKEN"
RAY = (sys.executable, "-m", "ray.scripts.scripts", "start", "--disable-usage-stats", "--block")
POLL_SECONDS = 0.5


def shared_token(environment: Mapping[str, str]) -> str:
    """What all nodes were given, so that nobody else can speak to them."""
    if environment.get("RAY_AUTH_MODE") != "token" or not environment.get(TOKEN):
        raise ConfigError(
            f"A Ray cluster over several pods wants RAY_AUTH_MODE=token and the same {TOKEN} in each: without, "
            "whoever reaches a pod could run code in it. The stage puts both into the job's command."
        )
    return environment[TOKEN]


def head_command(address: str, port: int, name: str, gpus: int, folder: Path) -> list[str]:
    words = ["--head", f"--port={port}", "--include-dashboard=false", f"--temp-dir={folder}"]
    return [*RAY, *words, *_node(address, name, gpus)]


def worker_command(head: str, address: str, name: str, gpus: int) -> list[str]:
    return [*RAY, f"--address={head}", *_node(address, name, gpus)]


def _node(address: str, name: str, gpus: int) -> list[str]:
    return [f"--node-ip-address={address}", f"--node-name={name}", f"--num-gpus={gpus}"]


def start(command: list[str], environment: Mapping[str, str]) -> "subprocess.Popen[bytes]":
    """A group of its own, so that the end of ours does not end it before we do."""
    return subprocess.Popen(command, env=dict(environment), stdout=subprocess.DEVNULL, start_new_session=True)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("", 0))
        return int(probe.getsockname()[1])


def wait_for_ray(address: str, nodes: int, seconds: float, check: Callable[[], None]) -> None:
    """Until Ray itself has this many nodes; `check` raises when it never will."""
    host, _, port = address.rpartition(":")
    until = time.monotonic() + seconds
    while not _open(host, int(port)):
        check()
        if time.monotonic() > until:
            raise TrainingError(f"Ray did not start at {address} within {seconds:.0f} s. Its own words stand above.")
        time.sleep(POLL_SECONDS)
    alive = _alive(address, nodes, until, check)
    if alive < nodes:
        raise TrainingError(f"Ray knows {alive} of {nodes} nodes after {seconds:.0f} s, though each pod has come.")


def _open(host: str, port: int) -> bool:
    try:
        socket.create_connection((host, port), timeout=1.0).close()
    except OSError:
        return False
    return True


def _alive(address: str, nodes: int, until: float, check: Callable[[], None]) -> int:
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    import ray

    told_to_stop = signal.getsignal(signal.SIGTERM)  # Ray sets its own
    ray.init(address=address, log_to_driver=False, logging_level="error")
    try:
        while True:
            check()
            alive = sum(bool(node["Alive"]) for node in ray.nodes())
            if alive >= nodes or time.monotonic() > until:
                return alive
            time.sleep(POLL_SECONDS)
    finally:
        ray.shutdown()
        signal.signal(signal.SIGTERM, told_to_stop)
