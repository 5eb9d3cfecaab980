"""Create the job of a step once. A retry, or a repeated call after a lost response, attaches to the existing job."""

import time
from collections.abc import Callable, Mapping
from typing import Any, Literal, TypeVar

from qinglan.errors import ConfigError
from qinglan.jobs.cluster.job_labels import ATTEMPT_ANNOTATION, RUN_LABEL, SPEC_ANNOTATION, STEP_LABEL
from qinglan.jobs.cluster.job_status import condition_message, is_finished
from qinglan.kubernetes.api_errors import ApiError
from qinglan.kubernetes.client import Api

Decision = Literal["attach", "replace", "wait", "refuse"]
CONFLICT = 409
DELETION_POLL_SECONDS = 0.5
DELETION_SECONDS = 90.0
Answer = TypeVar("Answer")


def decide_for_existing_job(existing: Mapping[str, Any], manifest: Mapping[str, Any]) -> Decision:
    """Decide how to handle an existing job with the same name: attach to it, replace it, wait, or refuse.

    `attach`: this attempt created the job (the response was lost), or the job has the same spec and has not failed.
    `replace`: the job has failed, or has another spec and is finished. `wait`: the job is being deleted. `refuse`: a
    job with another spec still runs.
    """
    annotations, expected = existing["metadata"].get("annotations", {}), manifest["metadata"]["annotations"]
    if existing["metadata"].get("deletionTimestamp"):
        return "wait"
    if annotations.get(ATTEMPT_ANNOTATION) == expected[ATTEMPT_ANNOTATION]:
        return "attach"
    if annotations.get(SPEC_ANNOTATION) != expected[SPEC_ANNOTATION]:
        return "replace" if is_finished(existing) else "refuse"
    return "replace" if condition_message(existing, "Failed") else "attach"


def create_or_attach(
    api: Api, manifest: Mapping[str, Any], patience: float, say: Callable[[str], None]
) -> dict[str, Any]:
    """Create the job, or attach to the existing job of this name. Returns the job as the API server stores it."""
    name, until = manifest["metadata"]["name"], time.monotonic() + DELETION_SECONDS
    while True:
        try:
            return retry_call(lambda: api.create("pytorchjobs", manifest), patience)
        except ApiError as refusal:
            if refusal.status != CONFLICT:
                raise
        existing = retry_call(lambda: api.get("pytorchjobs", name), patience)
        # None: the job was deleted between the two calls.
        decision = "wait" if existing is None else decide_for_existing_job(existing, manifest)
        if existing is not None and decision == "attach":
            say("found, and followed on")
            return existing
        if decision == "refuse":
            raise ConfigError(_spec_mismatch_message(api.namespace, manifest["metadata"]))
        if time.monotonic() > until:
            raise ConfigError(
                f"The job {name} in {api.namespace} is being deleted, and is not gone after "
                f"{DELETION_SECONDS:.0f} s. See what holds it: kubectl get pytorchjob,pods -n {api.namespace}. Then "
                "run again."
            )
        if existing is not None and decision == "replace":
            say("an earlier attempt is over, and is replaced")
            delete_and_wait(api, existing, DELETION_SECONDS)
        else:
            time.sleep(DELETION_POLL_SECONDS)


def delete_and_wait(api: Api, job: Mapping[str, Any], patience: float) -> bool:
    """Delete the job and wait until it and its pods are gone. Returns False if this took longer than `patience`."""
    # With foreground deletion the job is gone only after its pods, so the GPUs of the pods are free then.
    name, uid = job["metadata"]["name"], job["metadata"]["uid"]
    until = time.monotonic() + patience
    retry_call(lambda: api.delete("pytorchjobs", name, uid), patience)
    while time.monotonic() < until:
        left = retry_call(lambda: api.get("pytorchjobs", name), max(1.0, until - time.monotonic()))
        if left is None or left["metadata"]["uid"] != uid:
            return True
        time.sleep(DELETION_POLL_SECONDS)
    return False


def retry_call(call: Callable[[], Answer], patience: float) -> Answer:
    """Repeat a call while the server does not answer, for up to `patience` seconds."""
    until, pause = time.monotonic() + patience, 0.2
    while True:
        try:
            return call()
        except ApiError as refusal:
            if not refusal.at_once or time.monotonic() + pause > until:
                raise
        time.sleep(pause)
        pause = min(pause * 2, 5.0)


def _spec_mismatch_message(namespace: str, meta: Mapping[str, Any]) -> str:
    labels = meta["labels"]
    return (
        f"The job {meta['name']} in {namespace} is that of step {labels[STEP_LABEL]!r} of run {labels[RUN_LABEL]!r}, "
        "and runs with another command, image or resources. Steps of a run need names of their own; if this one "
        "was changed, "
        f"end the old one first: kubectl delete pytorchjob {meta['name']} -n {namespace}"
    )
