"""CPU time of everything that a block of code starts, whatever has ended meanwhile."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import psutil

EVERY_SECONDS = 0.2


class CpuMeter:
    """Looks at this process and its descendants now and then; a process counts as far as it was last seen."""

    def __init__(self) -> None:
        self._sampled: dict[tuple[int, float], float] = {}
        self._here = psutil.Process()
        self._before = {(running.pid, running.create_time()): _seconds(running) for running in self._all()}

    def sample(self) -> None:
        for running in self._all():
            with suppress(psutil.Error):
                self._sampled[running.pid, running.create_time()] = _seconds(running)

    @property
    def seconds(self) -> float:
        """CPU seconds of this process and of those that were started since: older servers serve everybody."""
        me = (self._here.pid, self._here.create_time())
        own_seconds = self._sampled[me] - self._before[me]
        return own_seconds + sum(used for which, used in self._sampled.items() if which not in self._before)

    def _all(self) -> list[psutil.Process]:
        return [self._here, *self._here.children(recursive=True)]


@contextmanager
def measured() -> Iterator[CpuMeter]:
    """The meter of a block; read its seconds afterwards."""
    meter, over = CpuMeter(), threading.Event()

    def watch() -> None:
        while not over.wait(EVERY_SECONDS):
            meter.sample()

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield meter
    finally:
        over.set()
        thread.join()
        meter.sample()


def _seconds(process: psutil.Process) -> float:
    with suppress(psutil.Error):
        times = process.cpu_times()
        return float(times.user + times.system)
    return 0.0
