"""Follow a run: print a line when a step changes or a pod cannot start, and the outcome at the end.

The run is KFP's: whoever follows it may go, and come back with `qinglan follow`.
"""

import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal, NamedTuple, Protocol, TypeVar

from pipelines.submit.kfp_client import FINAL_STATES, Run
from qinglan.errors import GateHeldError, OutageError, TrainingError

MARKS = {"SUCCEEDED": "✓", "FAILED": "✗", "RUNNING": "▶", "SKIPPED": "-", "CANCELED": "■", "CANCELING": "■"}
WORDS = {"SUCCEEDED": "done", "CANCELED": "canceled", "CANCELING": "is being canceled"}
STILL = frozenset({"PENDING", "RUNNING", "CANCELING"})


Answer = TypeVar("Answer")


class PollIntervals(NamedTuple):
    """Seconds between two readings."""

    first: float = 1.0
    longest: float = 15.0
    """Longest time between two readings of a run that does not change."""

    pods: float = 15.0
    settle: float = 10.0
    """Time to wait, after a run's end, for its steps to report theirs."""

    patience: float = 600.0
    """Time that KFP may be unreachable, such as while it restarts or a laptop sleeps."""

    cancel: float = 60.0
    """Time that a canceled run may take to end."""


DEFAULT_INTERVALS = PollIntervals()


class PodProblem(NamedTuple):
    """The reason why a pod of a run cannot go on, or how it ended."""

    step: str
    name: str
    state: Literal["waiting", "failed"]
    why: str
    container: str = "main"


class PodReader(Protocol):
    """Source of the run's pods, if they may be read."""

    def stuck(self, run_id: str) -> list[PodProblem]: ...

    def last_lines(self, pod: PodProblem) -> list[str]: ...


class RunClient(Protocol):
    """The calls to KFP that following a run needs."""

    def run(self, run_id: str) -> Run: ...

    def spec(self, run: Run) -> dict[str, Any]: ...

    def cancel(self, run_id: str) -> None: ...

    def page(self, run_id: str) -> str: ...


class Follower:
    """Reads a run until it is over, and reports what has changed."""

    def __init__(
        self,
        kfp: RunClient,
        run_id: str,
        say: Callable[[str], None],
        pods: PodReader | None = None,
        namespace: str = "NAMESPACE",
        pace: PollIntervals = DEFAULT_INTERVALS,
    ) -> None:
        self._kfp, self._id, self._say, self._pods, self._pace = kfp, run_id, say, pods, pace
        self._namespace = namespace
        self._names: frozenset[str] | None = None
        self._branches: frozenset[str] = frozenset()
        self._shown: dict[str, str] = {}
        self._waits: set[tuple[str, str]] = set()
        self._last_pod_check = float("-inf")
        self.state = "UNKNOWN"
        """The run's state at the last reading."""

    @property
    def states(self) -> dict[str, str]:
        """Each step's state at the last reading."""
        return dict(self._shown)

    def follow(self) -> Run:
        """Wait until the run is over; returns it."""
        delay = self._pace.first
        while True:
            run = self._read_run()
            news = self._report_steps(run)
            if run.over:
                return self._wait_for_steps(run)
            self._report_waiting_pods()
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
        return run

    def _wait_out_outages(self, ask: Callable[[], Answer]) -> Answer:
        """Ask KFP; an outage is reported and waited out."""
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
            self._say(f"{MARKS.get(state, '·')} {name} {WORDS.get(state, state.lower())}")
        self._shown |= news
        return bool(news)

    def _steps(self, run: Run) -> frozenset[str]:
        if self._names is None:
            spec = self._wait_out_outages(lambda: self._kfp.spec(run))
            self._names, self._branches = step_names(spec), branches(spec)
        return self._names

    def _report_waiting_pods(self) -> None:
        """Report pods that cannot start, once for each reason, because KFP shows them as RUNNING."""
        if self._pods is None or time.monotonic() - self._last_pod_check < self._pace.pods:
            return
        self._last_pod_check = time.monotonic()
        for pod in self._pods.stuck(self._id):
            if pod.state == "waiting" and (pod.step, pod.why) not in self._waits:
                self._waits.add((pod.step, pod.why))
                self._say(f"· {pod.step} waits: {pod.why}")

    def _wait_for_steps(self, run: Run) -> Run:
        """Read the steps again until they have ended too, which is a little after the run has."""
        until = time.monotonic() + self._pace.settle
        while time.monotonic() < until and not self._all_steps_ended(run):
            time.sleep(self._pace.first)
            run = self._read_run()
            self._report_steps(run)
        return run

    def _all_steps_ended(self, run: Run) -> bool:
        over = {task.name for task in run.tasks if task.state in FINAL_STATES}
        steps = step_states(run, self._steps(run))
        return not STILL & set(steps.values()) and (run.state != "SUCCEEDED" or self._branches <= over)

    def failure(self, run: Run) -> list[str]:
        """Describe the failed steps, with the messages of their pods if these can be read."""
        failed = [name for name, state in step_states(run, self._steps(run)).items() if state == "FAILED"]
        lines = [f"{run.name} {WORDS.get(run.state, run.state.lower())}{_at(failed)}. {run.error}".rstrip()]
        failed_pods = [pod for pod in (self._pods.stuck(self._id) if self._pods else ()) if pod.state == "failed"]
        for pod in failed_pods:
            lines.append(f"{pod.step}: pod {pod.name}: {pod.why}")
            lines += [f"  | {line}" for line in (self._pods.last_lines(pod) if self._pods else ())]
        if not failed_pods:
            lines.append(f"Its log: kubectl logs -n {self._namespace} -l pipeline/runid={self._id} -c main --tail=50")
        return [*lines, f"The page: {self._kfp.page(self._id)}"]


def raise_unless_released(run: Run, failure: Callable[[Run], Iterable[str]]) -> None:
    """Raise an error unless the run ended with a release."""
    if run.state != "SUCCEEDED":
        raise TrainingError(*failure(run))
    if any(task.state == "SKIPPED" and task.name.startswith("condition-") for task in run.tasks):
        raise GateHeldError(
            f"{run.name}: the gate says hold. Nothing is released; the evaluation on the run's page says why."
        )


def cancel_message(run: Run, page: str) -> str:
    """Describe the result of a cancel request."""
    if run.over:
        return f"{run.name}: {WORDS.get(run.state, run.state.lower())}"
    return (
        f"{run.name}: KFP has been told, and is still ending it: a step runs on until its pod is gone. See {page}, "
        f"or `qinglan follow {run.id}`."
    )


def _at(failed: Iterable[str]) -> str:
    names = ", ".join(failed)
    return f" at {names}" if names else ""


def branches(spec: Mapping[str, Any]) -> frozenset[str]:
    """Find the branches that every run reaches; whether one was taken shows the gate's verdict."""
    tasks = spec.get("root", {}).get("dag", {}).get("tasks", {})
    return frozenset(name for name in tasks if name.startswith("condition-"))


def step_names(spec: Mapping[str, Any]) -> frozenset[str]:
    """Collect the tasks that run a container, by KFP's names, without the branches around them."""
    components = spec.get("components", {})
    dags = [spec.get("root", {}), *components.values()]
    return frozenset(
        name
        for component in dags
        for name, task in component.get("dag", {}).get("tasks", {}).items()
        if "dag" not in components.get(task["componentRef"]["name"], {})
    )


STATES_BY_SEVERITY = ("SKIPPED", "SUCCEEDED", "PENDING", "PAUSED", "RUNNING", "CANCELING", "CANCELED", "FAILED")


AROUND = frozenset({"root", "executor"})
"""Tasks that KFP lists beside the steps; used to recognise steps when a run's graph is gone."""


def step_states(run: Run, names: frozenset[str]) -> dict[str, str]:
    """Map steps to their states, without the other tasks that KFP lists: drivers, executors, branches.

    A driver's failure counts as its step's, which then never starts. A step in a loop has the worst state of all.
    """
    states: dict[str, str] = {}
    for task in run.tasks:
        name = task.name.removesuffix("-driver") if task.state == "FAILED" else task.name
        known = name in names if names else name not in AROUND and not name.startswith("condition-")
        if known and task.state in STATES_BY_SEVERITY and not name.endswith("-driver"):
            states[name] = max(states.get(name, STATES_BY_SEVERITY[0]), task.state, key=STATES_BY_SEVERITY.index)
    return states
