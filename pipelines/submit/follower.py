"""Follow a run: print a line when a step changes or a pod cannot start, and the outcome at the end.

KFP executes the run, so following it can be interrupted, and resumed with `qinglan follow`.
"""

import re
import time
from collections.abc import Callable
from typing import NamedTuple, TypeVar

from pipelines.submit.kfp_client import FINAL_STATES, KfpClient, Run
from pipelines.submit.pods import ClusterPods, PodProblem
from pipelines.submit.step_states import branches, step_names, step_states
from pipelines.submit.workflow import ClusterWorkflow, WorkflowSnapshot
from qinglan.errors import GateHeldError, OutageError, TrainingError

MARKS = {"SUCCEEDED": "✓", "FAILED": "✗", "RUNNING": "▶", "SKIPPED": "-", "CANCELED": "■", "CANCELING": "■"}
WORDS = {"SUCCEEDED": "done", "CANCELED": "canceled", "CANCELING": "is being canceled"}
CACHED = "answered from KFP's cache"
UNFINISHED = frozenset({"PENDING", "RUNNING", "CANCELING"})
NUMBER = re.compile(r"\d+")
NO_WORKFLOW = (
    "Steps are shown as KFP lists them: a pod that the cluster refuses looks as if it ran, and in a large run the "
    "list ends early."
)
"""Message about the limits of following a run whose Workflow cannot be read."""

Answer = TypeVar("Answer")


class PollIntervals(NamedTuple):
    """Times in seconds: between two readings of a run, and limits of waiting."""

    first: float = 1.0
    longest: float = 15.0
    """Longest time between two readings of a run that does not change."""

    pods: float = 15.0
    settle: float = 10.0
    """Time to wait after a run's end until its steps are reported as ended, too."""

    patience: float = 600.0
    """Time that KFP may be unreachable, such as while it restarts or a laptop sleeps."""

    cancel: float = 60.0
    """Time that a canceled run may take to end."""


DEFAULT_INTERVALS = PollIntervals()


class ClusterView(NamedTuple):
    """The cluster that runs the steps, as far as the follower may read it."""

    namespace: str = "NAMESPACE"
    pods: ClusterPods | None = None
    workflow: ClusterWorkflow | None = None

    def stuck_pods(self, run_id: str) -> list[PodProblem]:
        return self.pods.stuck(run_id) if self.pods else []


UNKNOWN_CLUSTER = ClusterView()


class Follower:
    """Reads a run until it is over, and reports what has changed."""

    def __init__(
        self,
        kfp: KfpClient,
        run_id: str,
        say: Callable[[str], None],
        cluster: ClusterView = UNKNOWN_CLUSTER,
        pace: PollIntervals = DEFAULT_INTERVALS,
    ) -> None:
        self._kfp, self._id, self._say, self._cluster, self._pace = kfp, run_id, say, cluster, pace
        self._workflow = WorkflowSnapshot()
        self._names: frozenset[str] | None = None
        self._branches: frozenset[str] = frozenset()
        self._shown: dict[str, str] = {}
        self._waits: set[tuple[str, str]] = set()
        self._last_check = float("-inf")
        self.state = "UNKNOWN"
        """The run's state at the last reading."""

    @property
    def states(self) -> dict[str, str]:
        return dict(self._shown)

    def follow(self) -> Run:
        """Wait until the run is over; returns it."""
        delay = self._pace.first
        while True:
            run = self._read_run()
            news = self._report_steps(run)
            if run.over:
                return self._wait_for_steps(run)
            self._report_waits()
            # Read often while something happens, and ever less often while a long training runs.
            delay = self._pace.first if news else min(delay * 1.5, self._pace.longest)
            time.sleep(delay)

    def cancel(self) -> Run:
        """Cancel the run and wait for its end; it may still be ending when the time is up."""
        run = self._read_run()
        if run.over:
            return run
        if run.state != "CANCELING":
            self._wait_out_outages(lambda: self._kfp.cancel(self._id))
            self._say(f"{run.name}: cancel asked for")
        until = time.monotonic() + self._pace.cancel
        while not run.over and time.monotonic() < until:
            time.sleep(self._pace.first)
            run = self._read_run()
            self._report_steps(run)
        return run

    def _read_run(self) -> Run:
        run = self._wait_out_outages(lambda: self._kfp.run(self._id))
        self.state = run.state
        self._read_workflow()
        # KFP's own list of tasks stops growing when Argo compresses the Workflow; the Workflow itself stays complete.
        return run._replace(tasks=self._workflow.tasks or run.tasks)

    def _read_workflow(self) -> None:
        """Read the Workflow, from which KFP copies its list of tasks; report once if that is not possible."""
        if self._cluster.workflow is None:
            return
        before, self._workflow = self._workflow, self._cluster.workflow.read(self._id)
        if self._workflow.unseen and not before.unseen:
            self._say(f"{self._workflow.unseen} {NO_WORKFLOW}")

    def _wait_out_outages(self, ask: Callable[[], Answer]) -> Answer:
        """Call KFP; during an outage, report it once and call again until it is over or patience ends."""
        until, delay, reported = time.monotonic() + self._pace.patience, self._pace.first, False
        while True:
            try:
                answer = ask()
            except OutageError as error:
                if time.monotonic() + delay > until:
                    raise OutageError(f"{error} The run goes on without you: `qinglan follow {self._id}`.") from error
                if not reported:
                    self._say(f"{error} Asking again.")
                reported = True
            else:
                if reported:
                    self._say("KFP answers again.")
                return answer
            time.sleep(delay)
            delay = min(delay * 2, self._pace.longest)

    def _report_steps(self, run: Run) -> bool:
        """Report the steps that have changed; returns whether there were any."""
        states = step_states(run, self._steps(run))
        news = {name: state for name, state in states.items() if self._shown.get(name) != state}
        for name, state in news.items():
            cached = state == "SUCCEEDED" and name in self._workflow.cached
            word = CACHED if cached else WORDS.get(state, state.lower())
            self._say(f"{MARKS.get(state, '·')} {name} {word}")
        self._shown |= news
        return bool(news)

    def _steps(self, run: Run) -> frozenset[str]:
        if self._names is None:
            spec = self._wait_out_outages(lambda: self._kfp.spec(run))
            self._names, self._branches = step_names(spec), branches(spec)
        return self._names

    def _report_waits(self) -> None:
        """Report pods that cannot start or be made, once for each reason, because KFP shows them as RUNNING."""
        if time.monotonic() - self._last_check < self._pace.pods:
            return
        self._last_check = time.monotonic()
        waits = [(pod.step, pod.why) for pod in self._cluster.stuck_pods(self._id) if pod.state == "waiting"]
        with_pods = {step for step, _ in waits}
        nodes = [node for node in self._workflow.problems if node.state == "PENDING"]
        waits += [(node.step, node.why) for node in nodes if node.step not in with_pods]
        for step, why in waits:
            # A quota is refused again and again with other numbers; without them it is the same reason.
            reason = (step, NUMBER.sub("", why))
            if reason not in self._waits:
                self._waits.add(reason)
                self._say(f"· {step} waits: {why}")

    def _wait_for_steps(self, run: Run) -> Run:
        """Read the steps again until they have ended too."""
        # KFP's persistence agent reports the run and its tasks one after the other, so the last step may look
        # RUNNING.
        until = time.monotonic() + self._pace.settle
        while time.monotonic() < until and not self._all_steps_ended(run):
            time.sleep(self._pace.first)
            run = self._read_run()
            self._report_steps(run)
        return run

    def _all_steps_ended(self, run: Run) -> bool:
        steps = step_states(run, self._steps(run))
        return not UNFINISHED & set(steps.values()) and (run.state != "SUCCEEDED" or not self._unlisted(run))

    def _unlisted(self, run: Run) -> frozenset[str]:
        """Return the branches behind a gate whose end is not in the run's list of tasks."""
        self._steps(run)
        return self._branches - {task.name for task in run.tasks if task.state in FINAL_STATES}

    def raise_unless_released(self, run: Run) -> None:
        """Raise an error unless the run ended with a release."""
        if run.state != "SUCCEEDED":
            raise TrainingError(*self._failure(run))
        # KFP compiles dsl.If into a task named condition-N: skipped means that the gate said hold.
        if any(task.state == "SKIPPED" and task.name.startswith("condition-") for task in run.tasks):
            raise GateHeldError(
                f"{run.name}: the gate says hold. Nothing is released; the evaluation on the run's page says why."
            )
        if self._unlisted(run):
            raise OutageError(
                f"{run.name}: succeeded, but its list of steps ends before the gate's branch, so that promote and "
                f"hold look alike here. KFP's own list stops growing in a large run. The run's page has the decision "
                f"of its gate: {self._kfp.page(self._id)}"
            )

    def _failure(self, run: Run) -> list[str]:
        failed = ", ".join(name for name, state in step_states(run, self._steps(run)).items() if state == "FAILED")
        where = f" at {failed}" if failed else ""
        lines = [f"{run.name} {WORDS.get(run.state, run.state.lower())}{where}. {run.error}".rstrip()]
        failed_pods = [pod for pod in self._cluster.stuck_pods(self._id) if pod.state == "failed"]
        for pod in failed_pods:
            lines.append(f"{pod.step}: pod {pod.name}: {pod.why}")
            lines += [f"  | {line}" for line in (self._cluster.pods.last_lines(pod) if self._cluster.pods else ())]
        with_pods = {pod.step for pod in failed_pods}
        nodes = [node for node in self._workflow.problems if node.state == "FAILED" and node.step not in with_pods]
        lines += dict.fromkeys(f"{node.step}: {node.why}" for node in nodes)
        if not failed_pods:
            logs = f"kubectl logs -n {self._cluster.namespace} -l pipeline/runid={self._id} -c main --tail=50"
            lines.append(f"Its log: {logs}")
        return [*lines, f"The page: {self._kfp.page(self._id)}"]


def cancel_message(run: Run, page: str) -> str:
    """Describe the result of a cancel request."""
    if run.state == "FAILED":
        return f"{run.name}: ended. KFP lists it as failed, as where a step failed before or its pod was killed."
    if run.over:
        return f"{run.name}: {WORDS.get(run.state, run.state.lower())}"
    return (
        f"{run.name}: KFP has been told, and is still ending it: a step runs on until its pod is gone. See {page}, "
        f"or `qinglan follow {run.id}`."
    )
