"""The lines about a job that waits: one for each time that it has waited too long, in each of its waits."""

from collections.abc import Sequence

import pytest

from qinglan.jobs.cluster.follower import ProgressReporter
from qinglan.jobs.cluster.job_status import JobStatus, Phase

PENDING_SECONDS = 600.0
Event = tuple[float, Phase]


@pytest.mark.parametrize(
    ("events", "warned_at"),
    [
        ([(0, "waiting"), (599, "waiting")], []),
        ([(0, "waiting"), (600, "waiting"), (601, "waiting"), (1199, "waiting")], [600]),
        ([(0, "waiting"), (600, "waiting"), (1200, "waiting"), (1800, "waiting")], [600, 1200, 1800]),
        ([(0, "waiting"), (500, "running"), (560, "waiting"), (1100, "waiting")], []),
        ([(0, "waiting"), (700, "waiting"), (700, "running"), (760, "waiting"), (1460, "waiting")], [700, 1460]),
        ([(0, "waiting"), (1200, "waiting"), (1201, "running"), (1300, "waiting"), (1900, "waiting")], [1200, 1900]),
    ],
)
def test_each_wait_is_warned_of_after_its_own_time(
    monkeypatch: pytest.MonkeyPatch, events: Sequence[Event], warned_at: list[float]
) -> None:
    """A pod that is evicted waits a second time, and the first wait's warnings do not count for that."""
    clock = [0.0]
    monkeypatch.setattr("qinglan.jobs.cluster.follower.time.monotonic", lambda: clock[0])
    lines: list[str] = []
    reporter = ProgressReporter("sft-0a", lines.append, PENDING_SECONDS)

    warned = []
    for at, phase in events:
        clock[0] = at + 1.0  # a clock at 0 says "no wait yet"
        before = len(lines)
        reporter.progress(JobStatus(phase, "0/4 nodes are available: 4 Insufficient nvidia.com/gpu"))
        if any("has waited" in line for line in lines[before:]):
            warned.append(at)

    assert warned == warned_at
