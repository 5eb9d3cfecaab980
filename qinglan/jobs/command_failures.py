"""Find the cause of a training command's failure in the last lines of its log, and name the next step."""

import re
from pathlib import Path

from qinglan.errors import QinglanError, TrainingError
from qinglan.jobs.spec import Outcome

TAIL = 200_000
"""Bytes that are read at the end of a log."""

CAUSES = (
    (r"No space left on device", "the disk is full", "Free some space"),
    # Ray ends workers before the kernel does. Its error is called OutOfMemoryError, like torch's error for a GPU.
    # https://docs.ray.io/en/latest/ray-core/scheduling/ray-oom-prevention.html
    (r"node running low on memory", "the machine's memory is full", "Give the machine or its pod more"),
    (r"CUDA out of memory|OutOfMemoryError", "the GPU's memory is full", "Lower the batch or shard over more GPUs"),
    (r"longer than max_length|exceeds? the (?:maximum|max)[ _]length", "a row is too long", "Raise max_length"),
    (
        r"did not take the new weights within",
        "vLLM died or hung while it was given new weights",
        "Read its last error (lines marked vLLMHttpServer in the log)",
    ),
    (r"NCCL.*(?:timed? ?out|error)", "the nodes lost each other", "See that all pods run and can reach each other"),
)
SIGNAL_CAUSES = {-9: "it was killed, most often because the machine's memory was full", -15: "it was told to stop"}
RESUMES = "and run again: it goes on from its last checkpoint."


def explain_failure(name: str, outcome: Outcome, log: Path) -> QinglanError:
    """Build the error of a failed command from its log and from the cluster's reason in `outcome`."""
    tail = ""
    if log.is_file():  # a pod that never ran has no log
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - TAIL))
            tail = file.read().decode("utf-8", "replace")
    reason = f" {outcome.reason}" if outcome.reason else ""
    for pattern, cause, step in CAUSES:
        if re.search(pattern, tail):
            return TrainingError(f"{name} stopped: {cause}. {step}, {RESUMES}{reason} Log: {log}")
    if outcome.code in SIGNAL_CAUSES and not reason:
        return TrainingError(f"{name} stopped: {SIGNAL_CAUSES[outcome.code]}. Mend that, {RESUMES} Log: {log}")
    lines = [line.strip() for line in tail.splitlines() if line.strip()]
    named = [line for line in lines if re.match(r"^[\w.]*(?:Error|Exception)\b.*:", line)]
    last_error = (named or lines or ["it said nothing."])[-1][:500]
    return TrainingError(f"{name} ended with code {outcome.code}: {last_error}{reason} Log: {log}")
