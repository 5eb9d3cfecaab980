"""Delete the jobs whose run has ended.

    python -m components.training.kubeflow.janitor --namespace NAMESPACE [--dry-run]

Kubeflow kills the steps of a terminated run without a signal, so that they cannot end their jobs, which would keep
their GPUs. A CronJob runs this every few minutes.
"""

import argparse
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from components.training.kubeflow.job_runner import KFP_RUN_LABEL
from qinglan.errors import QinglanError
from qinglan.jobs.cluster.job_labels import PART_OF_LABELS, RUN_LABEL, label_value
from qinglan.jobs.cluster.job_status import is_finished, parse_timestamp
from qinglan.kubernetes.api_errors import ApiError, explain_api_error
from qinglan.kubernetes.client import Api, connect
from qinglan.terminal import say, say_error

ENDED_PHASES = ("Succeeded", "Failed", "Error")
"""Phases of an Argo Workflow that has ended (https://argo-workflows.readthedocs.io/en/latest/fields/#workflowstatus).
Pods have the first two phases too."""

LONGEST_HOURS = 14 * 24.0
PAGE = "200"


class ExpiredJob(NamedTuple):
    job: Mapping[str, Any]
    why: str


def find_expired_jobs(
    jobs: Iterable[Mapping[str, Any]],
    workflows: Iterable[Mapping[str, Any]] | None,
    pods: Iterable[Mapping[str, Any]],
    now: float,
    hours: float = LONGEST_HOURS,
) -> list[ExpiredJob]:
    """Return the jobs to delete, each with the reason.

    `workflows` and `pods` must be listed after `jobs`. Then a missing owner was deleted, and is not merely newer than
    the list. `workflows` is None in a cluster without Argo.
    """
    # A terminated run keeps its Workflow, so garbage collection by owner references deletes no job:
    # https://kubernetes.io/docs/concepts/architecture/garbage-collection/#owners-dependents
    flows = None if workflows is None else list(workflows)
    alive = {owner["metadata"]["uid"] for owner in (*(flows or ()), *pods) if not _ended(owner)}
    runs = {
        label_value(run): flow
        for flow in flows or ()
        if (run := flow["metadata"].get("labels", {}).get(KFP_RUN_LABEL))
    }
    reasons = ((job, _deletion_reason(job, flows is not None, alive, runs, now, hours)) for job in jobs)
    return [ExpiredJob(job, why) for job, why in reasons if why]


def _deletion_reason(
    job: Mapping[str, Any],
    argo: bool,
    alive: set[str],
    runs: Mapping[str, Mapping[str, Any]],
    now: float,
    hours: float,
) -> str:
    if job["metadata"].get("deletionTimestamp"):
        return ""
    if now - parse_timestamp(job["metadata"]["creationTimestamp"]) > hours * 3600:
        return f"it is older than {hours:g} hours"
    if is_finished({"status": job.get("status") or {}}):
        # ttlSecondsAfterFinished deletes the job later; until then people can inspect it.
        return ""
    for owner in job["metadata"].get("ownerReferences", ()):
        is_listed = owner["kind"] == "Pod" or (owner["kind"] == "Workflow" and argo)
        if is_listed and owner["uid"] not in alive:
            return f"its {owner['kind']} {owner['name']} is over or gone"
    workflow = runs.get(job["metadata"].get("labels", {}).get(RUN_LABEL, ""))
    return f"the Workflow of its run {workflow['metadata']['name']} is over" if workflow and _ended(workflow) else ""


def _ended(owner: Mapping[str, Any]) -> bool:
    return (owner.get("status") or {}).get("phase") in ENDED_PHASES


def delete_expired_jobs(api: Api, dry_run: bool, hours: float) -> int:
    """Delete the jobs whose run has ended; returns their number. A dry run only counts them."""
    query = {"labelSelector": ",".join(f"{name}={value}" for name, value in PART_OF_LABELS.items())}
    jobs = list(_all(api, "pytorchjobs", query))  # first, see find_expired_jobs
    try:
        workflows = list(_all(api, "workflows", {}))
    except ApiError as refusal:
        if refusal.status != 404:
            raise
        workflows = None
    chosen = find_expired_jobs(jobs, workflows, _all(api, "pods", {}), time.time(), hours)
    for job, why in chosen:
        say(f"{'would delete' if dry_run else 'deletes'} job {job['metadata']['name']}: {why}")
        if not dry_run:
            api.delete("pytorchjobs", job["metadata"]["name"], job["metadata"]["uid"])
    return len(chosen)


def _all(api: Api, resource: str, query: Mapping[str, str]) -> Iterator[dict[str, Any]]:
    # https://kubernetes.io/docs/reference/using-api/api-concepts/#retrieving-large-results-sets-in-chunks
    page_query = {**query, "limit": PAGE}
    while True:
        page = api.all(resource, page_query)
        yield from page["items"]
        if not (more := page["metadata"].get("continue")):
            return
        page_query["continue"] = more


def main(words: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m components.training.kubeflow.janitor", description=__doc__)
    parser.add_argument("--namespace", help="whose jobs; else the one this pod or kubeconfig is in")
    parser.add_argument("--dry-run", action="store_true", help="say what would be deleted, and delete nothing")
    parser.add_argument("--max-hours", type=float, default=LONGEST_HOURS, help="older jobs go in any case")
    arguments = parser.parse_args(words)
    try:
        api = connect()
        api.namespace = arguments.namespace or api.namespace
        try:
            count = delete_expired_jobs(api, arguments.dry_run, arguments.max_hours)
        except ApiError as refusal:
            raise explain_api_error(refusal, api.host, api.namespace) from refusal
    except QinglanError as error:
        say_error(error)
        raise SystemExit(error.exit_code) from error
    say(f"{count} of the jobs in {api.namespace} {'would be' if arguments.dry_run else 'were'} deleted")


if __name__ == "__main__":
    main()
