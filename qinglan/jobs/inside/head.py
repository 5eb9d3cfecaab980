"""Rank 0 of a Ray cluster: it waits for all workers, runs the training, detects lost nodes, and ends the cluster."""

import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

from qinglan.errors import TrainingError
from qinglan.jobs.inside.node_info import NodeInfo, without_operator_variables
from qinglan.jobs.inside.raylet import (
    MAX_RAY_STARTS,
    POLL_SECONDS,
    StartDeadline,
    head_command,
    shared_token,
    start_ray,
    wait_for_ray_nodes,
)
from qinglan.jobs.inside.rendezvous import RendezvousServer
from qinglan.jobs.local import terminate_process_group
from qinglan.processes.services import free_port
from qinglan.terminal import say

LOSS_REPORT_SECONDS = 3.0
"""Seconds to wait, after the command has failed, for a report of a lost node, which may be the cause."""

DISMISS_SECONDS = 30.0
RAY_LOG_HINT = "Its own words stand above."


def run_head(where: NodeInfo, argv: Sequence[str], environment: Mapping[str, str], folder: Path, wait: float) -> int:
    """Run the command once all nodes have joined, and return its exit code.

    Raises a TrainingError if a node did not join or was lost.
    """
    roll = RendezvousServer(where.port, shared_token(environment), where.nodes)
    code = TrainingError.exit_code
    try:
        wait_for_workers(roll, where, wait)
        code = _run_on_cluster(where, argv, environment, folder, roll, wait)
    finally:
        roll.dismiss(code, DISMISS_SECONDS)
    return code


def wait_for_workers(roll: RendezvousServer, where: NodeInfo, seconds: float) -> None:
    until = time.monotonic() + seconds
    reported: list[int] = []
    while missing := roll.missing():
        if missing != reported:
            _say(f"waiting for {len(missing)} of {where.nodes} nodes: {pod_names(where, missing)}")
            reported = missing
        if time.monotonic() > until:
            raise TrainingError(
                f"{len(missing)} of {where.nodes} nodes did not come within {seconds:.0f} s: "
                f"{pod_names(where, missing)}. Most often no machine has GPUs free: see `kubectl describe pod` of "
                "each."
            )
        time.sleep(POLL_SECONDS)


def _run_on_cluster(
    where: NodeInfo,
    argv: Sequence[str],
    environment: Mapping[str, str],
    folder: Path,
    roll: RendezvousServer,
    wait: float,
) -> int:
    clean, code = without_operator_variables(environment), TrainingError.exit_code
    ray, address = _start_cluster(where, clean, folder, roll, wait)

    def check() -> None:
        _raise_if_node_lost(roll, where)
        if ray.poll() is not None:
            raise TrainingError(f"{where.pod(0)}: its Ray ended with code {ray.returncode}. {RAY_LOG_HINT}")

    try:
        roll.tell({"complete": True})
        _say(f"{where.nodes} nodes are there; the training starts")
        code = _run(argv, {**clean, "RAY_ADDRESS": address}, roll, check)
        return code
    finally:
        # Tell the workers before Ray ends. Otherwise they would notice their own Ray's end first, and report an
        # error.
        roll.tell({"ended": code})
        terminate_process_group(ray)


def _start_cluster(
    where: NodeInfo, environment: Mapping[str, str], folder: Path, roll: RendezvousServer, wait: float
) -> "tuple[subprocess.Popen[bytes], str]":
    """Start Ray's head and wait until all nodes have joined. Returns the head's process and address."""
    host = roll.my_address()
    for attempt in range(MAX_RAY_STARTS):
        port = free_port()
        ray = start_ray(head_command(host, port, where.pod(0), where.per_node, folder / str(attempt)), environment)
        address = f"{host}:{port}"
        clock = StartDeadline(wait, partial(_starting, roll, where, ray))
        try:
            wait_for_ray_nodes(address, where.nodes, clock, partial(roll.tell, {"ray": address}))
        except _RayStartError:
            _say(f"Ray did not start; attempt {attempt + 1} of {MAX_RAY_STARTS}")
            terminate_process_group(ray)
        except BaseException:
            terminate_process_group(ray)
            raise
        else:
            return ray, address
    raise TrainingError(f"{where.pod(0)}: Ray did not start in {MAX_RAY_STARTS} attempts. {RAY_LOG_HINT}")


class _RayStartError(Exception):
    """Raised if Ray ended before its cluster was ready."""


def _starting(roll: RendezvousServer, where: NodeInfo, ray: "subprocess.Popen[bytes]") -> None:
    _raise_if_node_lost(roll, where)
    if ray.poll() is not None:
        raise _RayStartError


def _raise_if_node_lost(roll: RendezvousServer, where: NodeInfo) -> None:
    if roll.lost:
        raise TrainingError(lost_nodes_message(where, roll.lost))


def _run(
    argv: Sequence[str], environment: Mapping[str, str], roll: RendezvousServer, check: Callable[[], None]
) -> int:
    process = subprocess.Popen(list(argv), env=dict(environment), process_group=0)
    try:
        while process.poll() is None:
            check()
            time.sleep(POLL_SECONDS)
        # If a node is lost, the command may fail before the node's connection closes. The lost node is the cause.
        if process.returncode:
            _listen_for_losses(roll)
            check()
        return process.returncode
    finally:
        terminate_process_group(process)


def _listen_for_losses(roll: RendezvousServer) -> None:
    until = time.monotonic() + LOSS_REPORT_SECONDS
    while not roll.lost and time.monotonic() < until:
        time.sleep(POLL_SECONDS)


def lost_nodes_message(where: NodeInfo, why: Mapping[int, str]) -> str:
    """Build the error message about lost nodes; `why` has the reason for each lost node, by rank."""
    each = "; ".join(f"{pod_names(where, [rank])}: {reason}" for rank, reason in sorted(why.items()))
    return (
        f"Training lost {len(why)} of {where.nodes} nodes ({each}). See that pod's events and last lines; killed for "
        "memory and a preempted node are the usual causes."
    )


def pod_names(where: NodeInfo, ranks: Sequence[int]) -> str:
    return ", ".join(f"{where.pod(rank)} (rank {rank})" for rank in ranks)


def _say(what: str) -> None:
    say(f"[inside] {what}", to=sys.stderr)
