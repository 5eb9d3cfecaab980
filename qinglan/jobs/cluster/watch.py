"""Watch the current state of one job by three watches: for the job, its pods, and events about refused pods.

with JobWatch(api, "sft-0123456789ab") as watch:
    watch.wait(0.5)
    watch.snapshot()
"""

import threading
import time
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self

from qinglan.jobs.cluster.snapshot import JOB_NAME_LABEL, JobSnapshot, known_pod
from qinglan.kubernetes.api_errors import ApiError
from qinglan.kubernetes.client import Api
from qinglan.kubernetes.informer import Informer

BEGUN_SECONDS = 60.0


class JobWatch:
    """Snapshot of one job, kept up to date by its watches.

    Entering the context waits until every watch has begun, and raises the ApiError of the first watch that failed.
    """

    def __init__(self, api: Api, name: str) -> None:
        refused_pods = f"involvedObject.kind=PyTorchJob,involvedObject.name={name},reason=FailedCreatePod"
        self._api = api
        self._job: dict[str, Any] | None = None
        self._pods: dict[str, dict[str, Any]] = {}
        self._refused: dict[str, Any] | None = None
        self._lock = threading.Lock()
        self._changed = threading.Event()
        self._informers = [
            Informer(api, "pytorchjobs", {"fieldSelector": f"metadata.name={name}"}, self._on_job),
            Informer(api, "pods", {"labelSelector": f"{JOB_NAME_LABEL}={name}"}, self._on_pod),
            Informer(api, "events", {"fieldSelector": refused_pods}, self._on_event),
        ]

    def __enter__(self) -> Self:
        for informer in self._informers:
            informer.start()
        try:
            for informer in self._informers:
                begun = informer.begun.wait(BEGUN_SECONDS)
                if trouble := informer.trouble:
                    raise trouble[1]
                if not begun:
                    raise ApiError("GET", informer.resource, 0, f"no answer for {BEGUN_SECONDS:.0f} s")
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop()

    def wait(self, seconds: float) -> None:
        """Wait until something changes, for at most `seconds`."""
        self._changed.wait(seconds)
        self._changed.clear()

    def snapshot(self) -> JobSnapshot:
        with self._lock:
            return JobSnapshot(self._job, dict(self._pods), self._refused)

    def trouble(self) -> tuple[float, ApiError] | None:
        """Return the seconds since a failing watch last worked, and its error; None while all watches work."""
        # Each informer's trouble is read once, because the informer's thread may reset it at any time.
        troubles = [trouble for trouble in [informer.trouble for informer in self._informers] if trouble]
        since, refusal = min(troubles, key=lambda trouble: trouble[0], default=(0.0, None))
        return (time.monotonic() - since, refusal) if refusal else None

    def created(self, job: Mapping[str, Any]) -> None:
        """Store the job that the API server returned at its creation; the watch may report the job only later."""
        with self._lock:
            if self._job is None or self._job["metadata"]["uid"] != job["metadata"]["uid"]:
                self._job = dict(job)

    def _stop(self) -> None:
        for informer in self._informers:
            informer.stop()

    def _on_job(self, change: str, job: Mapping[str, Any]) -> None:
        with self._lock:
            if change == "DELETED":
                self._job, self._pods, self._refused = None, {}, None
            else:
                self._job = dict(job)
        self._changed.set()

    def _on_pod(self, change: str, pod: Mapping[str, Any]) -> None:
        name = pod["metadata"]["name"]
        with self._lock:
            # A deleted pod stays in the snapshot, with the server's time, since its status says why the job failed.
            before = self._pods.get(name)
            if change != "DELETED":
                self._pods[name] = known_pod(pod, before)
            elif before is not None:
                last = known_pod(pod, before) if "status" in pod else before
                self._pods[name] = {**last, "gone": self._api.server_time()}
        self._changed.set()

    def _on_event(self, change: str, event: Mapping[str, Any]) -> None:
        if change != "DELETED":  # the server removes events after an hour, but their message stays true
            with self._lock:
                self._refused = dict(event)
            self._changed.set()
