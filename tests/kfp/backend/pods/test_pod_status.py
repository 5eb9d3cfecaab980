"""The status that KFP and Argo see of a pod whose containers are processes."""

import pytest

from tests.kfp.backend.pods.pod_status import ContainerState, exit_code, phase

WAITS = ContainerState("main", "image")
RUNS = WAITS._replace(started="09:00")
DONE, FAILED = RUNS._replace(ended="09:01", code=0), RUNS._replace(ended="09:01", code=7)


@pytest.mark.parametrize(
    ("initial", "main", "expected"),
    [
        ([], [WAITS], "Pending"),
        ([RUNS], [WAITS], "Pending"),
        ([FAILED], [WAITS], "Failed"),
        ([DONE], [RUNS, WAITS], "Pending"),
        ([DONE], [RUNS, DONE], "Running"),
        ([DONE], [DONE, DONE], "Succeeded"),
        ([DONE], [DONE, FAILED], "Failed"),
    ],
)
def test_the_phase_follows_from_the_containers(
    initial: list[ContainerState], main: list[ContainerState], expected: str
) -> None:
    assert phase(initial, main) == expected


@pytest.mark.parametrize(("returncode", "code"), [(0, 0), (3, 3), (-9, 137), (-15, 143)])
def test_a_signal_is_a_code_above_128(returncode: int, code: int) -> None:
    assert exit_code(returncode) == code
