"""Worker of a Ray cluster: it adds its machine to the head's Ray until the head has ended."""

import contextlib
import subprocess
import sys
from collections.abc import Mapping

from qinglan.errors import TrainingError
from qinglan.jobs.inside.node_info import NodeInfo, without_operator_variables
from qinglan.jobs.inside.raylet import MAX_RAY_STARTS, POLL_SECONDS, shared_token, start_ray, worker_command
from qinglan.jobs.inside.rendezvous import JsonConnection, connect_to_head
from qinglan.jobs.local import terminate_process_group
from qinglan.terminal import say

LAST_WORD_SECONDS = 2.0


def run_worker(where: NodeInfo, environment: Mapping[str, str], wait: float) -> int:
    """Serve the head until it has ended. Returns 0 even if the head failed; the head's pod reports the failure."""
    hello = {"token": shared_token(environment), "rank": where.rank, "pod": where.pod(where.rank)}
    line = connect_to_head(where.head, where.port, hello, wait)
    if line is None:
        raise TrainingError(
            f"{where.pod(0)} did not listen on port {where.port} within {wait:.0f} s. See `kubectl describe pod "
            f"{where.pod(0)}`, and whether a NetworkPolicy lets the job's pods reach each other."
        )
    try:
        return _serve_head(where, line, without_operator_variables(environment))
    finally:
        line.close()


def _serve_head(where: NodeInfo, line: JsonConnection, environment: Mapping[str, str]) -> int:
    """Join the head's Ray until the head has ended; if Ray does not start, start it again."""
    ray: subprocess.Popen[bytes] | None = None
    address, starts, complete = "", 0, False
    try:
        while True:
            if line.ready(POLL_SECONDS):
                word = line.next(None)
                if word is None or "ended" in word:
                    return _handle_head_exit(where, word)
                complete = complete or "complete" in word
                if "ray" in word:  # the head has started Ray, perhaps again at another address
                    address, starts = str(word["ray"]), 0
                    ray = _restart_ray(ray, where, line, address, environment)
            if ray is not None and ray.poll() is not None:
                starts += 1
                if complete or starts == MAX_RAY_STARTS:
                    return _handle_ray_exit(where, line, ray.returncode)
                ray = _restart_ray(ray, where, line, address, environment)
    finally:
        if ray is not None:
            terminate_process_group(ray)


def _restart_ray(
    ray: "subprocess.Popen[bytes] | None",
    where: NodeInfo,
    line: JsonConnection,
    address: str,
    environment: Mapping[str, str],
) -> "subprocess.Popen[bytes]":
    if ray is not None:
        terminate_process_group(ray)
    return start_ray(worker_command(address, line.own_address(), where.pod(where.rank), where.per_node), environment)


def _handle_ray_exit(where: NodeInfo, line: JsonConnection, code: int) -> int:
    """Handle the end of this node's Ray: return 0 if the head has ended too, else raise a TrainingError.

    If Ray ended because the head's Ray is gone, the head's message arrives a moment later.
    """
    while line.ready(LAST_WORD_SECONDS) and (word := line.next(1.0)):
        if "ended" in word:
            return _handle_head_exit(where, word)
    why = f"its Ray ended with code {code}"
    with contextlib.suppress(OSError):
        line.say({"lost": why})
    raise TrainingError(f"{where.pod(where.rank)}: {why}. Ray's own words stand above.")


def _handle_head_exit(where: NodeInfo, word: Mapping[str, int] | None) -> int:
    if word is None or "ended" not in word:
        raise TrainingError(
            f"{where.pod(0)} closed the connection without a result. See that pod's events and last lines."
        )
    say(f"[inside] {where.pod(0)} ended with code {word['ended']}", to=sys.stderr)
    return 0
