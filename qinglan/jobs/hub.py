"""Every job of a run, followed by three watches: of jobs, of pods, of the events that tell of refused pods.

with hub.following("sft-0123456789ab") as view:
    view.wait(0.5)
    view.seen()

Hundreds of jobs cost what one does: no call of their own while nothing changes. The watches run while anyone follows.
"""

import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from qinglan.jobs.api import Api
from qinglan.jobs.mirror import Mirror
from qinglan.jobs.names import RUN, label_value
from qinglan.jobs.refusals import Refusal
from qinglan.jobs.seen import JOB_OF_POD, Seen, slim_event, slim_job, slim_pod

BEGUN_SECONDS = 60.0
REFUSED_PODS = "involvedObject.kind=PyTorchJob,reason=FailedCreatePod"


class View:
    """One job, for whoever follows it."""

    def __init__(self, hub: "Hub", name: str) -> None:
        self.hub, self.name = hub, name
        self.changed = threading.Event()

    def wait(self, seconds: float) -> None:
        """Until something changes, and no longer."""
        self.changed.wait(seconds)
        self.changed.clear()

    def seen(self) -> Seen:
        return self.hub.seen(self.name)

    def trouble(self) -> tuple[float, Refusal] | None:
        """For how many seconds nothing is heard, and why; None when all is well."""
        return self.hub.trouble()

    def created(self, job: Mapping[str, Any]) -> None:
        """What the server answered when the job was made: it is known before the watch tells of it."""
        self.hub.created(job)


class Hub:
    def __init__(self, api: Api, run: str) -> None:
        self.api = api
        self._jobs: dict[str, dict[str, Any]] = {}
        self._pods: dict[str, dict[str, dict[str, Any]]] = {}
        self._refused: dict[str, dict[str, Any]] = {}
        self._views: dict[str, View] = {}
        self._lock = threading.RLock()
        self._starting = threading.Lock()
        self._mirrors: list[Mirror] = []
        self._of_run = {"labelSelector": f"{RUN}={label_value(run)}"}

    @contextmanager
    def following(self, name: str) -> Iterator[View]:
        view = View(self, name)
        with self._starting:
            with self._lock:
                self._views[name] = view
            try:
                self._start()
            except BaseException:
                self._leave(name)
                raise
        try:
            yield view
        finally:
            with self._starting:
                self._leave(name)

    def seen(self, name: str) -> Seen:
        with self._lock:
            return Seen(self._jobs.get(name), dict(self._pods.get(name, {})), self._refused.get(name))

    def created(self, job: Mapping[str, Any]) -> None:
        with self._lock:
            known = self._jobs.get(job["metadata"]["name"])
            if known is None or known["metadata"]["uid"] != job["metadata"]["uid"]:
                self._job("ADDED", job)

    def trouble(self) -> tuple[float, Refusal] | None:
        found = [mirror.trouble for mirror in self._mirrors if mirror.trouble]
        since, refusal = min(found, key=lambda one: one[0], default=(0.0, None))
        return (time.monotonic() - since, refusal) if refusal else None

    def _start(self) -> None:
        """Every watch has begun, or the first refusal is raised."""
        if self._mirrors:
            return
        self._mirrors = [
            Mirror(self.api, "pytorchjobs", self._of_run, self._job),
            Mirror(self.api, "pods", self._of_run, self._pod),
            Mirror(self.api, "events", {"fieldSelector": REFUSED_PODS}, self._event),
        ]
        for mirror in self._mirrors:
            mirror.start()
        for mirror in self._mirrors:
            heard = mirror.begun.wait(BEGUN_SECONDS)
            if mirror.trouble:
                raise mirror.trouble[1]
            if not heard:
                raise Refusal("GET", mirror.resource, 0, f"no answer for {BEGUN_SECONDS:.0f} s")

    def _leave(self, name: str) -> None:
        with self._lock:
            self._views.pop(name, None)
            left = bool(self._views)
        if not left:
            for mirror in self._mirrors:
                mirror.stop()
            self._mirrors = []
            for kept in (self._jobs, self._pods, self._refused):
                kept.clear()

    def _job(self, what: str, job: Mapping[str, Any]) -> None:
        name = job["metadata"]["name"]
        with self._lock:
            if what == "DELETED":
                self._jobs.pop(name, None)
                self._pods.pop(name, None)
                self._refused.pop(name, None)
            else:
                self._jobs[name] = slim_job(job)
        self._wake(name)

    def _pod(self, what: str, pod: Mapping[str, Any]) -> None:
        name = pod["metadata"].get("labels", {}).get(JOB_OF_POD, "")
        with self._lock:
            pods = self._pods.setdefault(name, {})
            before = pods.get(pod["metadata"]["name"])
            if what != "DELETED":
                pods[pod["metadata"]["name"]] = slim_pod(pod, before)
            elif before is not None:
                last = slim_pod(pod, before) if "status" in pod else before
                pods[pod["metadata"]["name"]] = {**last, "gone": time.time()}
        self._wake(name)

    def _event(self, what: str, event: Mapping[str, Any]) -> None:
        name = event["involvedObject"].get("name", "")
        if what != "DELETED":  # events are forgotten after an hour; what they said stays true
            with self._lock:
                self._refused[name] = slim_event(event)
            self._wake(name)

    def _wake(self, name: str) -> None:
        with self._lock:
            view = self._views.get(name)
        if view is not None:
            view.changed.set()
