"""Which job of a name is followed, which replaced, which left alone."""

from typing import Any

import pytest

from qinglan.errors import ConfigError
from qinglan.jobs.cluster.attach import Decision, create_or_attach, decide_for_existing_job, retry_call
from qinglan.jobs.cluster.job_labels import ATTEMPT_ANNOTATION, SPEC_ANNOTATION
from qinglan.kubernetes.api_errors import ApiError
from tests.qinglan.jobs.cluster.job_objects import job, status_is

RUNNING, SUCCEEDED, FAILED = status_is("Running"), status_is("Succeeded"), status_is("Failed")


def marked(spec: str, attempt: str, conditions: list[dict[str, str]], **meta: Any) -> dict[str, Any]:
    new_job = job(conditions=conditions)
    return {
        **new_job,
        "metadata": {
            **new_job["metadata"],
            "annotations": {SPEC_ANNOTATION: spec, ATTEMPT_ANNOTATION: attempt},
            **meta,
        },
    }


@pytest.mark.parametrize(
    ("existing", "decision"),
    [
        (marked("same", "earlier", RUNNING), "attach"),
        (marked("same", "earlier", SUCCEEDED), "attach"),
        (marked("same", "earlier", FAILED), "replace"),
        (marked("same", "this", FAILED), "attach"),
        (marked("same", "this", SUCCEEDED), "attach"),
        (marked("other", "earlier", RUNNING), "refuse"),
        (marked("other", "earlier", []), "refuse"),
        (marked("other", "earlier", SUCCEEDED), "replace"),
        (marked("other", "earlier", FAILED), "replace"),
        (marked("same", "earlier", RUNNING, deletionTimestamp="x"), "wait"),
        (job(conditions=RUNNING), "refuse"),
    ],
)
def test_a_name_that_is_taken(existing: dict[str, Any], decision: Decision) -> None:
    assert decide_for_existing_job(existing, marked("same", "this", [])) == decision


def test_an_outage_is_asked_through_and_a_refusal_is_not() -> None:
    answers = [ApiError("GET", "pods", 0, "down"), ApiError("GET", "pods", 503, "starting"), None]

    def ask() -> str:
        if answer := answers.pop(0):
            raise answer
        return "here"

    assert retry_call(ask, 5.0) == "here"
    answers = [ApiError("GET", "pods", 403, "no"), None]
    with pytest.raises(ApiError, match="403"):
        retry_call(ask, 5.0)


class TakenAndAbsent:
    """An API server that says of a name that it is taken, and that nothing has it."""

    namespace = "team"

    def __init__(self) -> None:
        self.calls = 0

    def create(self, resource: str, manifest: dict[str, Any]) -> dict[str, Any]:
        self.calls += 1
        assert self.calls < 1_000, "asked without a pause"
        raise ApiError("POST", resource, 409, "exists")

    def get(self, resource: str, name: str) -> None:
        return None


def test_a_name_that_is_taken_by_nothing_is_waited_for_and_not_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("qinglan.jobs.cluster.attach.DELETION_SECONDS", 0.2)
    monkeypatch.setattr("qinglan.jobs.cluster.attach.DELETION_POLL_SECONDS", 0.02)

    with pytest.raises(ConfigError, match="is being deleted, and is not gone"):
        create_or_attach(TakenAndAbsent(), job(conditions=[]), 1.0, lambda text: None)  # type: ignore[arg-type]
