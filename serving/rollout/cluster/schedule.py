"""When which rollout is looked at: at intervals and when something of it changed, one look of one at a time."""

import threading
import time
from collections.abc import Callable

GAP = 1.0
"""Between two looks of one rollout, however much changes."""


class Schedule:
    """Names that are due at moments; whoever takes one gives it back with the next moment, or drops it."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._changed = threading.Condition()
        self._due: dict[str, float] = {}
        self._last: dict[str, float] = {}
        self._taken: set[str] = set()

    def enqueue(self, name: str) -> None:
        """Now, or as soon after the last look as one may."""
        with self._changed:
            at = max(self._clock(), self._last.get(name, 0.0) + GAP)
            self._due[name] = min(at, self._due.get(name, at))
            self._changed.notify()

    def take(self, most: int, seconds: float) -> list[str]:
        """Those that are due and nobody looks at, the longest due first; waits for one for so long."""
        with self._changed:
            if not self._ready():
                self._changed.wait(min(self._until_next(), seconds))
            names = self._ready()[:most]
            for name in names:
                del self._due[name]
                self._taken.add(name)
            return names

    def requeue(self, name: str, after: float | None) -> None:
        """Looked at: due again after so long, or not before something changes."""
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

    def _until_next(self) -> float:
        waiting = [at for name, at in self._due.items() if name not in self._taken]
        return max(min(waiting, default=self._clock() + 60.0) - self._clock(), 0.0)
