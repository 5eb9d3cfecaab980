"""Show the progress of long work: a bar on a terminal, or one plain line every few seconds in a log."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Lock
from typing import Protocol

from qinglan.terminal import listed, say, visible

EVERY_SECONDS = 2.0


class Tick(Protocol):
    def __call__(self, note: str = "") -> None: ...


class ShowStep(Protocol):
    def __call__(self, step: int, total: int, note: str = "") -> None: ...


@contextmanager
def step_progress(label: str, rest: int = 0) -> Iterator[ShowStep]:
    """Show the progress of a program that counts its steps. Yields a function to call with step and total.

    `rest` is the number of similar programs that follow; the time left includes them.
    """
    first: tuple[int, float] | None = None
    """First reported step and its time. The time before it is start-up, so the pace is measured from here."""
    printed = -EVERY_SECONDS

    def show(step: int, total: int, note: str = "") -> None:
        nonlocal first, printed
        now = time.monotonic()
        first = first or (step, now)
        if step >= total or now - printed >= EVERY_SECONDS:
            printed = now
            pace = (now - first[1]) / (step - first[0]) if step > first[0] else 0.0
            steps = total - step + rest * total
            left = f"{pace * steps:.0f} s left" if pace and steps else ""
            say(f"[{label}] {listed(part for part in (f'step {step}/{total}', note, left) if part)}")

    yield show


@contextmanager
def progress(label: str, total: int | None = None) -> Iterator[Tick]:
    """Show the progress of work on items. Yields a function to call once per finished item."""
    if sys.stdout.isatty():
        with _bar(label, total) as tick:
            yield tick
    else:
        with _lines(label, total) as tick:
            yield tick


@contextmanager
def _bar(label: str, total: int | None) -> Iterator[Tick]:
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    from qinglan.terminal.console import Console

    with Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[note]}", markup=False),
        console=Console(),
    ) as bar:
        task = bar.add_task(label, total=total, note="")
        yield lambda note="": bar.update(task, advance=1, note=visible(note))


@contextmanager
def _lines(label: str, total: int | None) -> Iterator[Tick]:
    started = printed = time.monotonic()
    done, last_note = 0, ""

    def report() -> None:
        say(progress_line(label, done, total, time.monotonic() - started, last_note))

    def tick(note: str = "") -> None:
        nonlocal done, printed, last_note
        done, last_note = done + 1, note
        if time.monotonic() - printed >= EVERY_SECONDS:
            printed = time.monotonic()
            report()

    yield tick
    report()


def progress_line(label: str, done: int, total: int | None, seconds: float, note: str) -> str:
    """Format a line for a log, such as `[generate] 120/500, 38 a second, 10 s left, 3 quarantined`."""
    rate = done / seconds if seconds > 0 else 0.0
    parts = [f"{done}/{total}" if total is not None else str(done), f"{rate:.0f} a second"]
    if total is not None and rate > 0 and done < total:
        parts.append(f"{(total - done) / rate:.0f} s left")
    return f"[{label}] {listed(parts + ([note] if note else []))}"


class Transfer:
    """Counter of transferred bytes for any thread. Bytes that the target already had do not count for the speed."""

    def __init__(self, show: Callable[[int, int], None]) -> None:
        self._show = show
        self._lock = Lock()
        self._moved = self._existing = 0

    def add_moved(self, count: int) -> None:
        with self._lock:
            self._moved += count
            self._show(self._moved, self._existing)

    def add_existing(self, count: int) -> None:
        with self._lock:
            self._existing += count
            self._show(self._moved, self._existing)


@contextmanager
def transfer_progress(label: str, total: int) -> Iterator[Transfer]:
    """Show the progress of a transfer. Yields a counter; the target may already have some of the `total` bytes."""
    with _bytes_bar(label, total) if sys.stdout.isatty() else _byte_lines(label, total) as show:
        yield Transfer(show)


@contextmanager
def _bytes_bar(label: str, total: int) -> Iterator[Callable[[int, int], None]]:
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )

    from qinglan.terminal.console import Console

    columns = TextColumn("{task.description}", markup=False), BarColumn(), DownloadColumn(), TransferSpeedColumn()
    with Progress(*columns, TimeRemainingColumn(), console=Console()) as bar:
        task = bar.add_task(label, total=total)
        yield lambda moved, existing: bar.update(task, completed=moved + existing)


@contextmanager
def _byte_lines(label: str, total: int) -> Iterator[Callable[[int, int], None]]:
    started = printed = time.monotonic()
    last = 0, 0

    def show(moved: int, existing: int) -> None:
        nonlocal printed, last
        last = moved, existing
        if time.monotonic() - printed >= EVERY_SECONDS:
            printed = time.monotonic()
            say(bytes_line(label, total, moved, existing, printed - started))

    yield show
    say(bytes_line(label, total, *last, time.monotonic() - started))


def bytes_line(label: str, total: int, moved: int, existing: int, seconds: float) -> str:
    """Format a line for a log: `[push] 1.3 GB / 4.0 GB, 210.0 MB/s, 13 s left, 600.0 MB were there already`."""
    rate = moved / seconds if seconds > 0 else 0.0
    left = total - moved - existing
    parts = [f"{size_of(moved + existing)} / {size_of(total)}", f"{size_of(rate)}/s"]
    if rate > 0 and left > 0:
        parts.append(f"{left / rate:.0f} s left")
    if existing:
        parts.append(f"{size_of(existing)} were there already")
    return f"[{label}] {listed(parts)}"


def size_of(count: float) -> str:
    """Format a number of bytes for people: 950 B, 16.8 MB, 1.3 GB."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 999.95:
            return f"{count:.0f} B" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"
