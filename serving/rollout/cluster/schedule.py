"""Queue of rollouts that are due for a reconcile: at intervals, and after changes.

No rollout is in two reconciles at the same time.
"""

import threading
import time
from collections.abc import Callable

GAP = 1.0
"""Shortest time in seconds between two reconciles of the same rollout."""


class Schedule:
    """Names of rollouts with the times at which they are due. A taken name is requeued after its reconcile."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._changed = threading.Condition()
        self._due: dict[str, float] = {}
        self._last: dict[str, float] = {}
        self._taken: set[str] = set()

    def enqueue(self, name: str) -> None:
        """Make a name due now, but not earlier than GAP seconds after its last reconcile."""
        with self._changed:
            at = max(self._clock(), self._last.get(name, 0.0) + GAP)
            self._due[name] = min(at, self._due.get(name, at))
            self._changed.notify()

    def take(self, most: int, seconds: float) -> list[str]:
        """Take up to `most` due names, the longest due first. Wait up to `seconds` for the first one."""
        with self._changed:
            if not self._ready():
                waiting = [at - self._clock() for name, at in self._due.items() if name not in self._taken]
                self._changed.wait(max(min([seconds, *waiting]), 0.0))
            names = self._ready()[:most]
            for name in names:
                del self._due[name]
                self._taken.add(name)
            return names

    def requeue(self, name: str, after: float | None) -> None:
        """Put back a name from `take`. It is due in `after` seconds; if that is None, only by `enqueue`."""
        with self._changed:
            self._taken.discard(name)
            self._last[name] = now = self._clock()
            if after is not None:
                self._due[name] = min(now + after, self._due.get(name, now + after))
            self._changed.notify()

    def forget(self, name: str) -> None:
        with self._changed:
            self._due.pop(name, None)
            self._last.pop(name, None)

    def _ready(self) -> list[str]:
        now = self._clock()
        ready = [name for name, at in self._due.items() if at <= now and name not in self._taken]
        return sorted(ready, key=self._due.__getitem__)
