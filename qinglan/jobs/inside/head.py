"""Rank 0 of a Ray cluster: it waits for all, runs the training, notices who is lost, and ends the cluster."""

import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

from qinglan.errors import TrainingError
from qinglan.jobs.inside.place import Place, without_operator
from qinglan.jobs.inside.raylet import (
    POLL_SECONDS,
    STARTS,
    Clock,
    gather,
    head_command,
    shared_token,
    start,
)
from qinglan.jobs.inside.rollcall import RollCall
from qinglan.jobs.local import end_group
from qinglan.services import free_port
from qinglan.terminal import say

LOST_SECONDS = 3.0
"""A command that fails may fail since a node is gone: so long we wait to hear of it."""

DISMISS_SECONDS = 30.0
ABOVE = "Its own words stand above."


def head(where: Place, argv: Sequence[str], environment: Mapping[str, str], folder: Path, wait: float) -> int:
    """The command's own code; an error when not all came, or one was lost."""
    roll = RollCall(where.port, shared_token(environment), where.nodes)
    code = TrainingError.exit_code
    try:
        wait_for_all(roll, where, wait)
        code = _with_cluster(where, argv, environment, folder, roll, wait)
    finally:
        roll.dismiss(code, DISMISS_SECONDS)
    return code


def wait_for_all(roll: RollCall, where: Place, seconds: float) -> None:
    until = time.monotonic() + seconds
    said: list[int] = []
    while missing := roll.missing():
        if missing != said:
            _say(f"waiting for {len(missing)} of {where.nodes} nodes: {names(where, missing)}")
            said = missing
        if time.monotonic() > until:
            raise TrainingError(
                f"{len(missing)} of {where.nodes} nodes did not come within {seconds:.0f} s: "
                f"{names(where, missing)}. Most often no machine has GPUs free: see `kubectl describe pod` of each."
            )
        time.sleep(POLL_SECONDS)


def _with_cluster(
    where: Place, argv: Sequence[str], environment: Mapping[str, str], folder: Path, roll: RollCall, wait: float
) -> int:
    clean, code = without_operator(environment), TrainingError.exit_code
    ray, address = _begin(where, clean, folder, roll, wait)

    def check() -> None:
        _all_there(roll, where)
        if ray.poll() is not None:
            raise TrainingError(f"{where.pod(0)}: its Ray ended with code {ray.returncode}. {ABOVE}")

    try:
        roll.tell({"complete": True})
        _say(f"{where.nodes} nodes are there; the training starts")
        code = _run(argv, {**clean, "RAY_ADDRESS": address}, roll, check)
        return code
    finally:
        roll.tell({"ended": code})  # before Ray ends: its workers would see that first
        end_group(ray)


def _begin(
    where: Place, environment: Mapping[str, str], folder: Path, roll: RollCall, wait: float
) -> "tuple[subprocess.Popen[bytes], str]":
    """Ray's head, with all nodes in it, and its address."""
    own = roll.my_address()
    for attempt in range(STARTS):
        port = free_port()
        ray = start(head_command(own, port, where.pod(0), where.per_node, folder / str(attempt)), environment)
        address = f"{own}:{port}"
        clock = Clock(wait, partial(_starting, roll, where, ray))
        try:
            gather(address, where.nodes, clock, partial(roll.tell, {"ray": address}))
        except _GaveUp:
            _say(f"Ray did not start; attempt {attempt + 1} of {STARTS}")
            end_group(ray)
        except BaseException:
            end_group(ray)
            raise
        else:
            return ray, address
    raise TrainingError(f"{where.pod(0)}: Ray did not start in {STARTS} attempts. {ABOVE}")


class _GaveUp(Exception):
    """Ray ended before it was up."""


def _starting(roll: RollCall, where: Place, ray: "subprocess.Popen[bytes]") -> None:
    _all_there(roll, where)
    if ray.poll() is not None:
        raise _GaveUp


def _all_there(roll: RollCall, where: Place) -> None:
    if roll.lost:
        raise TrainingError(lost(where, roll.lost))


def _run(argv: Sequence[str], environment: Mapping[str, str], roll: RollCall, check: Callable[[], None]) -> int:
    process = subprocess.Popen(list(argv), env=dict(environment), process_group=0)
    try:
        while process.poll() is None:
            check()
            time.sleep(POLL_SECONDS)
        if process.returncode:
            _listen_for_losses(roll)
            check()
        return process.returncode
    finally:
        end_group(process)


def _listen_for_losses(roll: RollCall) -> None:
    until = time.monotonic() + LOST_SECONDS
    while not roll.lost and time.monotonic() < until:
        time.sleep(POLL_SECONDS)


def lost(where: Place, why: Mapping[int, str]) -> str:
    """What to say of nodes that are gone."""
    each = "; ".join(f"{names(where, [rank])}: {reason}" for rank, reason in sorted(why.items()))
    return (
        f"Training lost {len(why)} of {where.nodes} nodes ({each}). See that pod's events and last lines; killed for "
        "memory and a preempted node are the usual causes."
    )


def names(where: Place, ranks: Sequence[int]) -> str:
    return ", ".join(f"{where.pod(rank)} (rank {rank})" for rank in ranks)


def _say(what: str) -> None:
    say(f"[inside] {what}", to=sys.stderr)
