"""A job is made once: who comes again, after a retry or a lost answer, finds it."""

import time
from collections.abc import Callable, Mapping
from typing import Any, Literal, TypeVar

from qinglan.errors import ConfigError
from qinglan.jobs.names import ATTEMPT, RUN, SPEC, STEP
from qinglan.jobs.reading import condition, over
from qinglan.jobs.seen import slim_job
from qinglan.kubernetes.client import Api
from qinglan.kubernetes.refusals import Refusal

Decision = Literal["attach", "replace", "wait", "refuse"]
CONFLICT = 409
PAUSE = 0.5
GONE_SECONDS = 90.0
Answer = TypeVar("Answer")


def decide(found: Mapping[str, Any], wanted: Mapping[str, Any]) -> Decision:
    """What to do with the job that has the name already.

    One that failed before this attempt is tried anew: that is what a retry is for. One that this very attempt made,
    and whose answer was lost on the way, is followed whatever became of it.
    """
    theirs, ours = (one["metadata"].get("annotations", {}) for one in (found, wanted))
    if found["metadata"].get("deletionTimestamp"):
        return "wait"
    if theirs.get(ATTEMPT) == ours[ATTEMPT]:
        return "attach"
    job = slim_job(found)
    if theirs.get(SPEC) != ours[SPEC]:
        return "replace" if over(job) else "refuse"
    return "replace" if condition(job, "Failed") else "attach"


def make_or_find(
    api: Api, manifest: Mapping[str, Any], patience: float, say: Callable[[str], None]
) -> dict[str, Any]:
    """The job as the server has it, whoever made it."""
    name, until = manifest["metadata"]["name"], time.monotonic() + GONE_SECONDS
    while True:
        try:
            return persist(lambda: api.create("pytorchjobs", manifest), patience)
        except Refusal as refusal:
            if refusal.status != CONFLICT:
                raise
        found = persist(lambda: api.get("pytorchjobs", name), patience)
        if found is None:
            continue
        decision = decide(found, manifest)
        if decision == "attach":
            say("found, and followed on")
            return found
        if decision == "refuse":
            raise ConfigError(_other(api.namespace, manifest["metadata"]))
        if time.monotonic() > until:
            raise ConfigError(_stays(api.namespace, name))
        if decision == "replace":
            say("an earlier attempt is over, and is replaced")
            end(api, found, GONE_SECONDS)
        time.sleep(PAUSE if decision == "wait" else 0)


def end(api: Api, job: Mapping[str, Any], patience: float) -> bool:
    """Delete the job and wait until it is gone, with its pods; whether it went in time."""
    name, uid = job["metadata"]["name"], job["metadata"]["uid"]
    until = time.monotonic() + patience
    persist(lambda: api.delete("pytorchjobs", name, uid), patience)
    while time.monotonic() < until:
        left = persist(lambda: api.get("pytorchjobs", name), max(1.0, until - time.monotonic()))
        if left is None or left["metadata"]["uid"] != uid:
            return True
        time.sleep(PAUSE)
    return False


def persist(call: Callable[[], Answer], patience: float) -> Answer:
    """Ask again for as long as the server gives no answer, within reason."""
    until, pause = time.monotonic() + patience, 0.2
    while True:
        try:
            return call()
        except Refusal as refusal:
            if not refusal.at_once or time.monotonic() + pause > until:
                raise
        time.sleep(pause)
        pause = min(pause * 2, 5.0)


def _other(namespace: str, meta: Mapping[str, Any]) -> str:
    labels = meta["labels"]
    return (
        f"The job {meta['name']} in {namespace} is that of step {labels[STEP]!r} of run {labels[RUN]!r}, and runs "
        "with another command, image or resources. Steps of a run need names of their own; if this one was changed, "
        f"end the old one first: kubectl delete pytorchjob {meta['name']} -n {namespace}"
    )


def _stays(namespace: str, name: str) -> str:
    return (
        f"The job {name} in {namespace} is being deleted, and is not gone after {GONE_SECONDS:.0f} s. See what holds "
        f"it: kubectl get pytorchjob,pods -n {namespace}. Then run again."
    )
