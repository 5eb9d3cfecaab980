"""A node that lends its machine to the head's Ray until the head has ended."""

import sys
import time
from collections.abc import Mapping

from qinglan.errors import TrainingError
from qinglan.jobs.inside.place import Place, without_operator
from qinglan.jobs.inside.raylet import POLL_SECONDS, shared_token, start, worker_command
from qinglan.jobs.inside.rollcall import Line, answer
from qinglan.jobs.local import end_group


def worker(where: Place, environment: Mapping[str, str], wait: float) -> int:
    """0 when the head has ended, well or not: the fault is the head's, and its pod is the one to read."""
    hello = {"token": shared_token(environment), "rank": where.rank, "pod": where.pod(where.rank)}
    line = answer(where.head, where.port, hello, wait)
    if line is None:
        raise TrainingError(
            f"{where.head} did not listen on port {where.port} within {wait:.0f} s. See `kubectl describe pod "
            f"{where.head}`, and whether a NetworkPolicy lets the job's pods reach each other."
        )
    told = line.next(wait)
    if told is None or "ray" not in told:
        return _ended(where, told)
    ray = start(
        worker_command(told["ray"], line.own_address(), where.pod(where.rank), where.per_node),
        without_operator(environment),
    )
    try:
        while ray.poll() is None:
            if line.ready(POLL_SECONDS):
                return _ended(where, line.next(None))
        return _alone(where, line, ray.returncode)
    finally:
        end_group(ray)
        line.close()


def _alone(where: Place, line: Line, code: int) -> int:
    """Ray ends by itself when it is killed, or when the head's is gone: then the head's word is on its way."""
    if line.ready(2.0) and (word := line.next(1.0)) and "ended" in word:
        return _ended(where, word)
    why = f"its Ray ended with code {code}"
    line.say({"lost": why})
    time.sleep(POLL_SECONDS)
    raise TrainingError(f"{where.pod(where.rank)}: {why}. Ray's own words stand above.")


def _ended(where: Place, word: Mapping[str, int] | None) -> int:
    if word is None or "ended" not in word:
        raise TrainingError(f"{where.head} is gone without a word. See that pod's events and last lines.")
    print(f"[inside] {where.head} ended with code {word['ended']}", file=sys.stderr, flush=True)
    return 0
