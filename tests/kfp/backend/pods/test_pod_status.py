"""The status that KFP and Argo see of a pod whose containers are processes."""

import pytest

from tests.kfp.backend.pods.pod_status import ContainerState, container_status, exit_code, phase, pod_status

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


def test_a_container_that_cannot_start_says_why() -> None:
    state = WAITS._replace(waiting="CreateContainerConfigError", message="secret 'keys' not found")

    waiting = container_status(state, "u-1")["state"]["waiting"]

    assert waiting == {"reason": "CreateContainerConfigError", "message": "secret 'keys' not found"}


def test_an_ended_container_has_its_code_and_times() -> None:
    ended = container_status(FAILED, "u-1")

    assert ended["state"]["terminated"] == {
        "exitCode": 7, "reason": "Error", "startedAt": "09:00", "finishedAt": "09:01",
    }  # fmt: skip
    assert not ended["ready"]


def test_a_running_pod_is_ready_and_an_ended_one_is_not() -> None:
    def ready(main: ContainerState) -> str:
        conditions = pod_status("u-1", "09:00", [DONE], [main])["conditions"]
        status: str = next(it["status"] for it in conditions if it["type"] == "Ready")
        return status

    assert (ready(WAITS), ready(RUNS), ready(DONE)) == ("False", "True", "False")
