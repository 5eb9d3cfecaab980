"""The watches of a job report their faults while their threads go on."""

from qinglan.jobs.cluster.watch import JobWatch
from qinglan.kubernetes.api_errors import ApiError


class Recovering:
    """An informer whose fault is gone once it has been read."""

    def __init__(self) -> None:
        self._readings = [(0.0, ApiError("GET", "pods", 503, "away"))]

    @property
    def trouble(self) -> tuple[float, ApiError] | None:
        return self._readings.pop() if self._readings else None


def test_a_trouble_that_ends_while_it_is_read_is_told_once() -> None:
    watch = JobWatch(api=None, name="job")  # type: ignore[arg-type]
    watch._informers = [Recovering()]  # type: ignore[list-item]

    trouble = watch.trouble()

    assert trouble is not None and trouble[1].status == 503
    assert watch.trouble() is None
