"""What a job's follower prints: a line when something changes, one now and then while it waits, and why it waits."""

import time
from collections.abc import Callable

from qinglan.jobs.job_status import JobStatus
from qinglan.jobs.pending import pending_remedy

REPEAT_SECONDS = 30.0


class ProgressReporter:
    def __init__(self, name: str, out: Callable[[str], None], pending: float) -> None:
        self.name, self.out, self.pending = name, out, pending
        self._last, self._said_at = "", 0.0
        self._waiting_since, self._warned = 0.0, 0

    def __call__(self, text: str) -> None:
        self.out(f"[job {self.name}] {text}")

    def progress(self, reading: JobStatus) -> None:
        now = time.monotonic()
        if reading.phase != "waiting":
            self._waiting_since = 0.0
            self._once(reading.text, now, again=False)
            return
        self._waiting_since = self._waiting_since or now
        waited = now - self._waiting_since
        if waited >= (self._warned + 1) * self.pending:
            self._warned += 1
            self(f"has waited {_minutes(waited)}. {reading.text}. {pending_remedy(reading.text)}; or cancel the run.")
        self._once(reading.text, now, again=True)

    def silence(self, seconds: float, why: str) -> None:
        """The API server says nothing; the job may be well."""
        minute = int(seconds // REPEAT_SECONDS)
        text = f"nothing heard of it, and asked again ({why}); the job itself runs on"
        self._once(f"{text}, {minute * REPEAT_SECONDS:.0f} s" if minute else text, time.monotonic(), again=False)

    def _once(self, text: str, now: float, again: bool) -> None:
        if text != self._last or (again and now - self._said_at >= REPEAT_SECONDS):
            self._last, self._said_at = text, now
            self(text)


def _minutes(seconds: float) -> str:
    return f"{seconds / 60:.0f} minutes" if seconds >= 60 else f"{seconds:.0f} s"
