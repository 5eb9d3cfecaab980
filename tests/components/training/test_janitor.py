"""Which jobs nobody follows any more."""

from typing import Any

import pytest

from components.training.kubeflow.janitor import find_expired_jobs
from tests.qinglan.jobs.cluster.job_objects import MADE_AT, job, status_is

NOW = MADE_AT + 3600


def thing(kind: str, uid: str, phase: str, run: str = "") -> dict[str, Any]:
    labels = {"pipeline/runid": run} if run else {}
    return {"metadata": {"name": f"{kind}-{uid}", "uid": uid, "labels": labels}, "status": {"phase": phase}}


def owned(kind: str = "", uid: str = "", run: str = "", **more: Any) -> dict[str, Any]:
    fields = job(conditions=status_is(more.pop("state", "Running")))
    owners = [{"kind": kind, "uid": uid, "name": f"{kind}-{uid}"}] if kind else []
    return {
        **fields,
        "metadata": {**fields["metadata"], "ownerReferences": owners, "labels": {"qinglan.dev/run": run}, **more},
    }


FLOWS = [thing("Workflow", "on", "Running", "r-on"), thing("Workflow", "off", "Failed", "r-off")]
PODS = [thing("Pod", "p-on", "Running"), thing("Pod", "p-off", "Succeeded")]


@pytest.mark.parametrize(
    ("what", "gpu_job", "why"),
    [
        ("its run goes on", owned("Workflow", "on"), ""),
        ("its run failed", owned("Workflow", "off"), "its Workflow Workflow-off is over or gone"),
        ("its run was deleted", owned("Workflow", "gone"), "its Workflow Workflow-gone is over or gone"),
        ("its pod goes on", owned("Pod", "p-on"), ""),
        ("its pod is over", owned("Pod", "p-off"), "its Pod Pod-p-off is over or gone"),
        ("its run goes on, by the label", owned(run="r-on"), ""),
        ("its run is over, by the label", owned(run="r-off"), "the Workflow of its run Workflow-off is over"),
        ("nobody knows its run", owned(run="elsewhere"), ""),
        ("an owner of another kind", owned("Notebook", "x"), ""),
        ("over: its time to live removes it", owned("Workflow", "off", state="Succeeded"), ""),
        ("failed, and its run too", owned("Workflow", "gone", state="Failed"), ""),
        ("on its way out", owned("Workflow", "off", deletionTimestamp="x"), ""),
    ],
)
def test_a_job_whose_run_is_over_is_deleted(what: str, gpu_job: dict[str, Any], why: str) -> None:
    assert [expired.why for expired in find_expired_jobs([gpu_job], FLOWS, PODS, NOW)] == ([why] if why else [])


def test_without_argo_there_is_its_age_alone() -> None:
    orphan = owned("Workflow", "gone")

    assert find_expired_jobs([orphan], None, [], NOW) == []
    assert [expired.why for expired in find_expired_jobs([orphan], None, [], MADE_AT + 3601, hours=1.0)] == [
        "it is older than 1 hours"
    ]


def test_a_job_that_is_just_made_has_no_state_yet() -> None:
    new = {**owned("Workflow", "off")}
    del new["status"]

    assert len(find_expired_jobs([new], FLOWS, PODS, NOW)) == 1
