"""Follow one job to its end. Print a line at each change of its status, and every 30 s while the job waits."""

import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from qinglan.jobs.cluster.attach import delete_and_wait, retry_call
from qinglan.jobs.cluster.job_labels import ATTEMPT_ANNOTATION
from qinglan.jobs.cluster.job_status import JobStatus, job_status, pods_of_job
from qinglan.jobs.cluster.pod_log import PodLog
from qinglan.jobs.cluster.pod_status import pending_remedy
from qinglan.jobs.cluster.snapshot import JobSnapshot
from qinglan.jobs.cluster.watch import JobWatch
from qinglan.jobs.interrupts import signals_ignored
from qinglan.jobs.spec import Outcome
from qinglan.kubernetes.api_errors import ApiError, explain_api_error
from qinglan.kubernetes.client import Api

STOPPED_EXIT_CODE = -15
"""Exit code of a job that was stopped, the same as that of a local process that SIGTERM ended."""

REPEAT_SECONDS = 30.0

STOP_POLL_SECONDS = 0.5
"""Seconds between two calls of `stop`."""


class FollowTimeouts(NamedTuple):
    """Time limits of a follower, in seconds."""

    pending: float = 600.0
    """Pending time after which the reason and the next step are printed. The follower then continues to wait."""

    outage: float = 300.0
    """Longest outage of the API server before the follower gives up; the job itself continues to run."""

    deletion: float = 90.0
    log: float = 15.0
    """Time to read the last log lines of a job that has ended."""

    settle: float = 3.0
    """Time to wait for the status of the failed pod after the job's status reports a failure."""


class ProgressReporter:
    def __init__(self, name: str, out: Callable[[str], None], pending: float) -> None:
        self.name, self.out, self.pending = name, out, pending
        self._last, self._said_at = "", 0.0
        self._waiting_since, self._warned = 0.0, 0

    def __call__(self, text: str) -> None:
        self.out(f"[job {self.name}] {text}")

    def progress(self, reading: JobStatus) -> None:
        now = time.monotonic()
        if reading.phase != "waiting":
            self._waiting_since, self._warned = 0.0, 0
            self._once(reading.text, now, again=False)
            return
        self._waiting_since = self._waiting_since or now
        waited = now - self._waiting_since
        if waited >= (self._warned + 1) * self.pending:
            self._warned += 1
            minutes = f"{waited / 60:.0f} minutes" if waited >= 60 else f"{waited:.0f} s"
            self(f"has waited {minutes}. {reading.text}. {pending_remedy(reading.text)}; or cancel the run.")
        self._once(reading.text, now, again=True)

    def silence(self, seconds: float, why: str) -> None:
        """Report an outage of the API server, during which the job may still run."""
        minute = int(seconds // REPEAT_SECONDS)
        text = f"nothing heard of it, and asked again ({why}); the job itself runs on"
        self._once(f"{text}, {minute * REPEAT_SECONDS:.0f} s" if minute else text, time.monotonic(), again=False)

    def _once(self, text: str, now: float, again: bool) -> None:
        if text != self._last or (again and now - self._said_at >= REPEAT_SECONDS):
            self._last, self._said_at = text, now
            self(text)


class Follower:
    def __init__(
        self, api: Api, watch: JobWatch, log: PodLog, reporter: ProgressReporter, patience: FollowTimeouts
    ) -> None:
        self.api, self.watch, self.log, self.reporter, self.patience = api, watch, log, reporter, patience

    def follow(self, job: Mapping[str, Any], stop: Callable[[], bool]) -> Outcome:
        """Follow the job to its end and return its outcome; delete the job if `stop` returns True.

        Raises the ApiError if the API server is unreachable for too long.
        """
        began_to_settle = 0.0
        while not stop():
            reading = self._read(job)
            # The job's status may arrive before the status of the failed pod, which has the reason.
            if reading.phase == "failed" and reading.culprit is None and not reading.final:
                began_to_settle = began_to_settle or time.monotonic()
                if time.monotonic() - began_to_settle < self.patience.settle:
                    self.watch.wait(STOP_POLL_SECONDS)
                    continue
            if reading.phase in ("succeeded", "failed", "hopeless"):
                return self._over(job, reading)
            self.reporter.progress(reading)
            self._raise_of_log()
            self.watch.wait(STOP_POLL_SECONDS)
        self.end(job)
        return Outcome(STOPPED_EXIT_CODE, "it was told to stop")

    def end(self, job: Mapping[str, Any]) -> None:
        """Delete the job and wait until it is gone.

        If `job` is only a manifest (without a uid), the job is deleted only if this attempt created it.
        """
        name, where = job["metadata"]["name"], f"-n {self.api.namespace}"
        with signals_ignored():
            try:
                if "uid" not in job["metadata"]:
                    attempt = job["metadata"]["annotations"][ATTEMPT_ANNOTATION]
                    current = retry_call(lambda: self.api.get("pytorchjobs", name), self.patience.deletion) or {}
                    annotations = current.get("metadata", {}).get("annotations", {})
                    job = current if annotations.get(ATTEMPT_ANNOTATION) == attempt else {}
                gone = not job or delete_and_wait(self.api, job, self.patience.deletion)
            except ApiError as refusal:
                why = explain_api_error(refusal, self.api.host, self.api.namespace)
                self.reporter(f"could not be ended: {why} Then: kubectl delete pytorchjob {name} {where}")
                return
        if job:
            self.reporter("ended, and gone" if gone else f"told to end; see: kubectl get pytorchjob,pods {where}")

    def _read(self, job: Mapping[str, Any]) -> JobStatus:
        if trouble := self.watch.trouble():
            seconds, refusal = trouble
            if seconds > self.patience.outage:
                raise refusal
            self.reporter.silence(seconds, refusal.message[:120])
        snapshot = self.watch.snapshot()
        if not _is_same_job(snapshot.job, job) and not (snapshot := self._fetch(job)).job:
            text = (
                f"somebody deleted it while it was followed ({job['metadata']['name']}: kubectl delete, the janitor, "
                "or the deletion of its run). Run the step again if that was not meant."
            )
            return JobStatus("failed", text, 1, final=True)
        for pod in pods_of_job(snapshot):  # only the master's log is followed
            if pod["ran"] and not pod["gone"] and pod["metadata"]["name"].endswith("-master-0"):
                self.log.start(pod)
        return job_status(snapshot, self.api.server_time())

    def _fetch(self, job: Mapping[str, Any]) -> JobSnapshot:
        """Read the job from the API server, because the watch does not know it.

        Returns an empty snapshot if the job is gone.
        """
        current = retry_call(lambda: self.api.get("pytorchjobs", job["metadata"]["name"]), self.patience.outage)
        if not _is_same_job(current, job):
            return JobSnapshot()
        self.watch.created(job)
        return self.watch.snapshot()

    def _over(self, job: Mapping[str, Any], reading: JobStatus) -> Outcome:
        if reading.phase == "hopeless":
            self.end(job)
        self.log.finish(self.patience.log)
        self._raise_of_log()
        self.reporter("succeeded" if reading.phase == "succeeded" else f"failed: {reading.text}")
        if reading.phase == "succeeded":
            return Outcome(0)
        return Outcome(reading.code or 1, f"job {job['metadata']['name']}: {reading.text}")

    def _raise_of_log(self) -> None:
        if self.log.error is not None:
            raise self.log.error


def _is_same_job(current: Mapping[str, Any] | None, job: Mapping[str, Any]) -> bool:
    return current is not None and current["metadata"]["uid"] == job["metadata"]["uid"]
