"""A training as a PyTorchJob: made once, followed to its end, and ended with whoever asked for it.

outcome = PyTorchJobRunner(api, placed(api, task_config)).run(spec, log)
"""

import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from qinglan.jobs.attach import decide, make_or_find, persist
from qinglan.jobs.follower import Follower, Lost, Patience, left_running
from qinglan.jobs.interrupts import sigterm_raises
from qinglan.jobs.logs import PodLog
from qinglan.jobs.manifest import render
from qinglan.jobs.placement import Placement
from qinglan.jobs.saying import Saying
from qinglan.jobs.spec import JobSpec, Outcome
from qinglan.jobs.watch import JobWatch
from qinglan.kubernetes.client import Api
from qinglan.kubernetes.refusals import Refusal, explain
from qinglan.terminal import say


class PyTorchJobRunner:
    """Fulfils Runner on a cluster."""

    remote = True

    def __init__(
        self, api: Api, place: Placement, patience: Patience | None = None, out: Callable[[str], None] = say
    ) -> None:
        self.api, self.place, self.patience, self.out = api, place, patience or Patience(), out

    def attaches(self, spec: JobSpec) -> bool:
        wanted = render(spec, self.place)
        try:
            found = persist(lambda: self.api.get("pytorchjobs", wanted["metadata"]["name"]), self.patience.outage)
        except Refusal as refusal:
            raise explain(refusal, self.api.host, self.api.namespace) from refusal
        return found is not None and decide(found, wanted) == "attach"

    def run(
        self,
        spec: JobSpec,
        log: Path,
        on_line: Callable[[str], None] = lambda line: None,
        stop: Callable[[], bool] = lambda: False,
    ) -> Outcome:
        """Interrupted, it deletes the job. An API server that is away is waited for; a job that can be heard of no
        longer is left running, for the next attempt to find."""
        return self.run_manifest(render(spec, self.place, uuid.uuid4().hex), log, on_line, stop)

    def run_manifest(
        self, manifest: Mapping[str, Any], log: Path, on_line: Callable[[str], None], stop: Callable[[], bool]
    ) -> Outcome:
        name = manifest["metadata"]["name"]
        saying = Saying(name, self.out, self.patience.pending)
        try:
            with sigterm_raises(), self._watching(name) as watch:
                pod_log = PodLog(self.api, log, on_line, saying)
                return self._make_and_follow(
                    manifest, Follower(self.api, watch, pod_log, saying, self.patience), stop
                )
        except Lost as lost:
            left_running(lost, self.api, name)
        except Refusal as refusal:
            raise explain(refusal, self.api.host, self.api.namespace) from refusal

    def _make_and_follow(self, manifest: Mapping[str, Any], follower: Follower, stop: Callable[[], bool]) -> Outcome:
        job = manifest
        try:
            job = make_or_find(self.api, manifest, self.patience.outage, follower.saying)
            follower.watch.created(job)
            return follower.follow(job, stop)
        except (Lost, Refusal):
            raise
        except BaseException:
            follower.end(job)
            raise
        finally:
            follower.log.stop()

    @contextmanager
    def _watching(self, name: str) -> Iterator[JobWatch]:
        """The watches run before the job is made: what cannot be followed is not begun."""
        with ExitStack() as stack:
            yield persist(lambda: stack.enter_context(JobWatch(self.api, name)), self.patience.outage)
