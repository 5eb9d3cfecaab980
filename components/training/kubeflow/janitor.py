"""python -m components.training.kubeflow.janitor --namespace NAMESPACE [--dry-run]: ends the jobs whose run is over.

A run that is terminated on Kubeflow's page takes its steps away without a word to them; the job that such a step was
following holds its GPUs on. Made to be run every few minutes, by a CronJob.
"""

import argparse
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from components.training.kubeflow.job_runner import KFP_RUN_LABEL
from qinglan.errors import QinglanError
from qinglan.jobs.job_labels import PART_OF_LABELS, RUN_LABEL, label_value
from qinglan.jobs.job_status import is_finished, parse_timestamp
from qinglan.kubernetes.api_errors import ApiError, explain_api_error
from qinglan.kubernetes.client import Api, connect
from qinglan.terminal import say, say_error

ENDED_PHASES = ("Succeeded", "Failed", "Error")
"""How Argo says that a Workflow has ended; Kubernetes says the first two of a pod."""

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
    """Which jobs to delete. `workflows` and `pods` were listed after `jobs`, so what is missing there is gone;
    None: there are no Workflows in this cluster."""
    flows = None if workflows is None else list(workflows)
    alive = {one["metadata"]["uid"] for one in (*(flows or ()), *pods) if not _ended(one)}
    runs = {
        label_value(run): one for one in flows or () if (run := one["metadata"].get("labels", {}).get(KFP_RUN_LABEL))
    }
    found = ((job, _deletion_reason(job, flows is not None, alive, runs, now, hours)) for job in jobs)
    return [ExpiredJob(job, why) for job, why in found if why]


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
        return ""  # its own time to live removes it, and until then it can be looked at
    for owner in job["metadata"].get("ownerReferences", ()):
        known = owner["kind"] == "Pod" or (owner["kind"] == "Workflow" and argo)
        if known and owner["uid"] not in alive:
            return f"its {owner['kind']} {owner['name']} is over or gone"
    workflow = runs.get(job["metadata"].get("labels", {}).get(RUN_LABEL, ""))
    return f"the Workflow of its run {workflow['metadata']['name']} is over" if workflow and _ended(workflow) else ""


def _ended(thing: Mapping[str, Any]) -> bool:
    return (thing.get("status") or {}).get("phase") in ENDED_PHASES


def delete_expired_jobs(api: Api, dry_run: bool, hours: float) -> int:
    """How many jobs were deleted, or would be."""
    ours = {"labelSelector": ",".join(f"{name}={value}" for name, value in PART_OF_LABELS.items())}
    jobs = list(_all(api, "pytorchjobs", ours))  # first: what its run is asked for afterwards was there before
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
    asked = {**query, "limit": PAGE}
    while True:
        page = api.all(resource, asked)
        yield from page["items"]
        if not (more := page["metadata"].get("continue")):
            return
        asked["continue"] = more


def main(words: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m components.training.kubeflow.janitor", description=__doc__)
    parser.add_argument("--namespace", help="whose jobs; else the one this pod or kubeconfig is in")
    parser.add_argument("--dry-run", action="store_true", help="say what would be deleted, and delete nothing")
    parser.add_argument("--max-hours", type=float, default=LONGEST_HOURS, help="older jobs go in any case")
    told = parser.parse_args(words)
    try:
        api = connect()
        api.namespace = told.namespace or api.namespace
        count = _delete_or_explain(api, told.dry_run, told.max_hours)
    except QinglanError as error:
        say_error(error)
        raise SystemExit(error.exit_code) from error
    say(f"{count} of the jobs in {api.namespace} {'would be' if told.dry_run else 'were'} deleted")


def _delete_or_explain(api: Api, dry_run: bool, hours: float) -> int:
    try:
        return delete_expired_jobs(api, dry_run, hours)
    except ApiError as refusal:
        raise explain_api_error(refusal, api.host, api.namespace) from refusal


if __name__ == "__main__":
    main()
