"""Run a training as a PyTorchJob: create it once, follow it to its end, and delete it if its step is stopped.

outcome = PyTorchJobRunner(api, read_launch_context(api, task_config)).run(spec, log)
"""

import uuid
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from qinglan.jobs.cluster.attach import create_or_attach, decide_for_existing_job, retry_call
from qinglan.jobs.cluster.follower import Follower, FollowTimeouts, ProgressReporter
from qinglan.jobs.cluster.launch_context import LaunchContext
from qinglan.jobs.cluster.manifest import render_pytorchjob
from qinglan.jobs.cluster.pod_log import PodLog
from qinglan.jobs.cluster.watch import JobWatch
from qinglan.jobs.interrupts import sigterm_raises
from qinglan.jobs.spec import JobSpec, Outcome
from qinglan.kubernetes.api_errors import ApiError, explain_api_error
from qinglan.kubernetes.client import Api
from qinglan.terminal import say


class PyTorchJobRunner:
    """Implementation of the Runner protocol that runs each job as a PyTorchJob on a cluster."""

    remote = True

    def __init__(
        self,
        api: Api,
        launch: LaunchContext,
        patience: FollowTimeouts | None = None,
        out: Callable[[str], None] = say,
    ) -> None:
        self.api, self.launch, self.patience, self.out = api, launch, patience or FollowTimeouts(), out

    def attaches(self, spec: JobSpec) -> bool:
        manifest = render_pytorchjob(spec, self.launch)
        name = manifest["metadata"]["name"]
        try:
            existing = retry_call(lambda: self.api.get("pytorchjobs", name), self.patience.outage)
        except ApiError as refusal:
            raise explain_api_error(refusal, self.api.host, self.api.namespace) from refusal
        return existing is not None and decide_for_existing_job(existing, manifest) == "attach"

    def run(
        self,
        spec: JobSpec,
        log: Path,
        on_line: Callable[[str], None] = lambda line: None,
        stop: Callable[[], bool] = lambda: False,
    ) -> Outcome:
        """Create the job or attach to it, and follow it to its end. An interrupt deletes the job.

        If the API server is unreachable for too long, the job is left running, and the next attempt attaches to it.
        """
        return self.run_manifest(render_pytorchjob(spec, self.launch, uuid.uuid4().hex), log, on_line, stop)

    def run_manifest(
        self, manifest: Mapping[str, Any], log: Path, on_line: Callable[[str], None], stop: Callable[[], bool]
    ) -> Outcome:
        name = manifest["metadata"]["name"]
        reporter = ProgressReporter(name, self.out, self.patience.pending)
        try:
            # The watches start before the job is created, so that no job is started that cannot be followed.
            with sigterm_raises(), ExitStack() as stack:
                watch = retry_call(lambda: stack.enter_context(JobWatch(self.api, name)), self.patience.outage)
                pod_log = PodLog(self.api, log, on_line, reporter)
                follower = Follower(self.api, watch, pod_log, reporter, self.patience)
                return self._make_and_follow(manifest, follower, stop)
        except ApiError as refusal:
            raise explain_api_error(refusal, self.api.host, self.api.namespace) from refusal

    def _make_and_follow(self, manifest: Mapping[str, Any], follower: Follower, stop: Callable[[], bool]) -> Outcome:
        job = manifest
        try:
            job = create_or_attach(self.api, manifest, self.patience.outage, follower.reporter)
            follower.watch.created(job)
            return follower.follow(job, stop)
        except ApiError as refusal:
            if job is manifest:
                raise
            # The job may run well, and the next attempt attaches to it.
            error = explain_api_error(refusal, self.api.host, self.api.namespace)
            name, namespace = job["metadata"]["name"], self.api.namespace
            raise type(error)(
                f"{error} The job {name} in {namespace} is left running: run the step again, and it is followed on."
            ) from refusal
        except BaseException:  # Ctrl-C, SIGTERM, an error of `on_line`: no process would follow the job
            follower.end(job)
            raise
        finally:
            follower.log.stop()
