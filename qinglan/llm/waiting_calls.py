"""Reports calls that wait while no answer comes, so that a provider that hangs does not look like one that works.

    with waiting.call():
        answer = await send()

It prints a progress line of the client's step, such as
`[generate] 10 calls wait, the oldest for 80 s: status 429 (rate limit); asked again in 8 s`.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Iterator
from contextlib import contextmanager

from qinglan.terminal import say

SILENT_SECONDS = 15.0
"""Seconds without an answer before a line is printed, and seconds between two such lines."""


class WaitingCalls:
    """Tracks the calls of one client that have no answer yet."""

    def __init__(self, step: str, hold_up: Callable[[], Awaitable[str]]) -> None:
        """`hold_up` returns the reason why calls wait; it is called only when a line is due."""
        self._step, self._hold_up = step, hold_up
        self._sent: dict[object, float] = {}
        self._answered = 0.0
        self._watch: asyncio.Task[None] | None = None

    @contextmanager
    def call(self) -> Iterator[None]:
        key = object()
        self._sent[key] = time.monotonic()
        if self._watch is None:
            self._watch = asyncio.create_task(self._watch_answers())
        try:
            yield
        finally:
            del self._sent[key]
            self._answered = time.monotonic()

    def stop(self) -> None:
        if self._watch is not None:
            self._watch.cancel()

    async def _watch_answers(self) -> None:
        while True:
            await asyncio.sleep(SILENT_SECONDS)
            if line := waiting_line(self._step, self._sent.values(), self._answered, time.monotonic()):
                reason = await self._hold_up()
                say(f"{line}: {reason}" if reason else line)


def waiting_line(step: str, sent: Collection[float], answered: float, now: float) -> str:
    """Write a progress line about calls that were sent at the times in `sent`. It is empty if a call ended within
    SILENT_SECONDS, or if no call has waited that long."""
    if not sent or now - max(min(sent), answered) < SILENT_SECONDS:
        return ""
    seconds = now - min(sent)
    if len(sent) == 1:
        return f"[{step}] 1 call waits, for {seconds:.0f} s"
    return f"[{step}] {len(sent):,} calls wait, the oldest for {seconds:.0f} s"
