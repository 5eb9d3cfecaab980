"""A failed command's error: the cause that its log names, and the next step."""

from pathlib import Path

import pytest

from qinglan.jobs import Outcome
from qinglan.jobs.command_failures import explain_failure

NO_ANSWER = "TrainingError: vLLM did not take the new weights within 600 seconds: one of the two died or hangs"

RAY_KILLED = (
    "ray.exceptions.OutOfMemoryError: 3 worker(s) were killed due to the node running low on memory. Memory on the "
    "node (IP: 192.0.2.2, ID: 651bee) was 22.54GB used / 23.54GB limit (0.957595)"
)


@pytest.mark.parametrize(
    ("log", "message"),
    [
        (
            NO_ANSWER,
            "vLLM died or hung while it was given new weights. Read its last error (lines marked vLLMHttpServer",
        ),
        (f"ray.exceptions.RayTaskError(OutOfMemoryError): ...\n{RAY_KILLED}", "the machine's memory is full"),
        (f"torch.OutOfMemoryError: CUDA out of memory.\n{NO_ANSWER}", "the GPU's memory is full"),
        ("ValueError: no such thing", "verl ended with code 1: ValueError: no such thing"),
    ],
)
def test_the_cause_that_the_log_names_is_told_with_the_next_step(tmp_path: Path, log: str, message: str) -> None:
    (tmp_path / "train.log").write_text(log)

    assert message in str(explain_failure("verl", Outcome(1), tmp_path / "train.log"))
