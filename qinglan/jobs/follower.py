"""One job, followed to its end."""

import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, NoReturn

from qinglan.jobs.attach import end, persist
from qinglan.jobs.interrupts import undisturbed
from qinglan.jobs.logs import PodLog
from qinglan.jobs.names import ATTEMPT
from qinglan.jobs.reading import Reading, own_pods, read
from qinglan.jobs.saying import Saying
from qinglan.jobs.seen import Seen
from qinglan.jobs.spec import Outcome
from qinglan.jobs.watch import JobWatch
from qinglan.kubernetes.client import Api
from qinglan.kubernetes.refusals import Refusal, explain

STOPPED = -15
"""The code of a command that was told to stop, here as on this machine."""

ASK_SECONDS = 0.5
"""How often `stop` is asked."""


class Patience(NamedTuple):
    """In seconds."""

    pending: float = 600.0
    """A job that waits longer says why, and what to do; it waits on."""

    outage: float = 300.0
    """An API server that restarts is waited for so long, while the job runs on."""

    deletion: float = 90.0
    log: float = 15.0
    """For the last lines, once a job is over."""

    settle: float = 3.0
    """For the news of the pod that failed, which may come after the news that the job did."""


class Lost(Exception):
    """Nothing was heard for too long: the job is left as it is."""

    def __init__(self, refusal: Refusal) -> None:
        self.refusal = refusal


class Follower:
    def __init__(self, api: Api, watch: JobWatch, log: PodLog, saying: Saying, patience: Patience) -> None:
        self.api, self.watch, self.log, self.saying, self.patience = api, watch, log, saying, patience

    def follow(self, job: Mapping[str, Any], stop: Callable[[], bool]) -> Outcome:
        """To its end; a failure is held back for a moment while nobody is to blame yet."""
        began_to_settle = 0.0
        while not stop():
            reading = self._read(job)
            if reading.phase == "failed" and reading.culprit is None and not reading.final:
                began_to_settle = began_to_settle or time.monotonic()
                if time.monotonic() - began_to_settle < self.patience.settle:
                    self.watch.wait(ASK_SECONDS)
                    continue
            if reading.phase in ("succeeded", "failed", "hopeless"):
                return self._over(job, reading)
            self.saying.progress(reading)
            self._raise_of_log()
            self.watch.wait(ASK_SECONDS)
        self.end(job)
        return Outcome(STOPPED, "it was told to stop")

    def end(self, job: Mapping[str, Any]) -> None:
        """Delete it, and wait until it is gone. A manifest will do, whose job this attempt may have made or not."""
        name, where = job["metadata"]["name"], f"-n {self.api.namespace}"
        with undisturbed():
            try:
                if "uid" not in job["metadata"]:
                    job = self._made_by_this_attempt(job) or {}
                gone = not job or end(self.api, job, self.patience.deletion)
            except Refusal as refusal:
                why = explain(refusal, self.api.host, self.api.namespace)
                self.saying(f"could not be ended: {why} Then: kubectl delete pytorchjob {name} {where}")
                return
        if job:
            self.saying("ended, and gone" if gone else f"told to end; see: kubectl get pytorchjob,pods {where}")

    def _made_by_this_attempt(self, manifest: Mapping[str, Any]) -> dict[str, Any] | None:
        found = persist(lambda: self.api.get("pytorchjobs", manifest["metadata"]["name"]), self.patience.deletion)
        ours = manifest["metadata"]["annotations"][ATTEMPT]
        return found if found and found["metadata"].get("annotations", {}).get(ATTEMPT) == ours else None

    def _read(self, job: Mapping[str, Any]) -> Reading:
        if trouble := self.watch.trouble():
            seconds, refusal = trouble
            if seconds > self.patience.outage:
                raise Lost(refusal)
            self.saying.silence(seconds, refusal.message[:120])
        seen = self.watch.snapshot()
        if not _is(seen.job, job) and not (seen := self._asked(job)).job:
            return Reading("failed", _vanished(job), 1, final=True)
        self._start_log(seen)
        return read(seen, time.time())

    def _asked(self, job: Mapping[str, Any]) -> Seen:
        """The watch does not know it, or knows another: it is new, or gone."""
        try:
            found = persist(lambda: self.api.get("pytorchjobs", job["metadata"]["name"]), self.patience.outage)
        except Refusal as refusal:
            raise Lost(refusal) from refusal
        if not _is(found, job):
            return Seen()
        self.watch.created(job)
        return self.watch.snapshot()

    def _start_log(self, seen: Seen) -> None:
        """The first node's: it is the one that speaks."""
        for pod in own_pods(seen):
            if pod["ran"] and not pod["gone"] and pod["metadata"]["name"].endswith("-master-0"):
                self.log.start(pod)

    def _over(self, job: Mapping[str, Any], reading: Reading) -> Outcome:
        if reading.phase == "hopeless":
            self.end(job)
        self.log.finish(self.patience.log)
        self._raise_of_log()
        self.saying("succeeded" if reading.phase == "succeeded" else f"failed: {reading.text}")
        if reading.phase == "succeeded":
            return Outcome(0)
        return Outcome(reading.code or 1, f"job {job['metadata']['name']}: {reading.text}")

    def _raise_of_log(self) -> None:
        if self.log.error is not None:
            raise self.log.error


def left_running(lost: Lost, api: Api, name: str) -> NoReturn:
    error = explain(lost.refusal, api.host, api.namespace)
    raise type(error)(
        f"{error} The job {name} in {api.namespace} is left running: run the step again, and it is followed on."
    )


def _is(found: Mapping[str, Any] | None, job: Mapping[str, Any]) -> bool:
    return found is not None and found["metadata"]["uid"] == job["metadata"]["uid"]


def _vanished(job: Mapping[str, Any]) -> str:
    return (
        f"somebody deleted it while it was followed ({job['metadata']['name']}: kubectl delete, the janitor, or the "
        "deletion of its run). Run the step again if that was not meant."
    )
