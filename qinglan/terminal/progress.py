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
    """First reported step and its time."""
    printed = -EVERY_SECONDS

    def show(step: int, total: int, note: str = "") -> None:
        nonlocal first, printed
        now = time.monotonic()
        first = first or (step, now)
        if step >= total or now - printed >= EVERY_SECONDS:
            printed = now
            # Seconds per step, measured from the first report, because the time before it is start-up.
            pace = (now - first[1]) / (step - first[0]) if step > first[0] else 0.0
            steps = total - step + rest * total
            left = f"{pace * steps:.0f} s left" if pace and steps else ""
            say(f"[{label}] {listed(part for part in (f'step {step}/{total}', note, left) if part)}")

    yield show


@contextmanager
def progress(label: str, total: int | None = None) -> Iterator[Tick]:
    """Show the progress of work on items. Yields a function to call once per finished item."""
    done, last_note = 0, ""

    def line(seconds: float) -> str:
        return progress_line(label, done, total, seconds, last_note)

    with _display(label, total, line) as show:

        def tick(note: str = "") -> None:
            nonlocal done, last_note
            done, last_note = done + 1, note
            show(done, note)

        yield tick


class Transfer:
    """Counts transferred bytes, also from several threads. Bytes that the target already had do not count for the
    speed."""

    def __init__(self, show: Callable[[float, str], None]) -> None:
        self._show = show
        self._lock = Lock()
        self.moved = self.existing = 0

    def add_moved(self, count: int) -> None:
        with self._lock:
            self.moved += count
            self._show(self.moved + self.existing, "")

    def add_existing(self, count: int) -> None:
        with self._lock:
            self.existing += count
            self._show(self.moved + self.existing, "")


@contextmanager
def transfer_progress(label: str, total: int) -> Iterator[Transfer]:
    """Show the progress of a transfer. Yields a counter; the target may already have some of the `total` bytes."""
    transfer: Transfer

    def line(seconds: float) -> str:
        return bytes_line(label, total, transfer.moved, transfer.existing, seconds)

    with _display(label, total, line, in_bytes=True) as show:
        transfer = Transfer(show)
        yield transfer


@contextmanager
def _display(
    label: str, total: int | None, line: Callable[[float], str], in_bytes: bool = False
) -> Iterator[Callable[[float, str], None]]:
    """Show a bar on a terminal; otherwise print a `line` every few seconds and at the end. `line` gets the seconds
    since the beginning. Yields a function to call with the amount that is done, and a note."""
    if not sys.stdout.isatty():
        started = printed = time.monotonic()

        def show_line(done: float, note: str) -> None:
            nonlocal printed
            if time.monotonic() - printed >= EVERY_SECONDS:
                printed = time.monotonic()
                say(line(printed - started))

        yield show_line
        say(line(time.monotonic() - started))
        return

    from rich import progress as bars

    from qinglan.terminal.console import Console

    counts = (bars.DownloadColumn(), bars.TransferSpeedColumn()) if in_bytes else (bars.MofNCompleteColumn(),)
    texts = [bars.TextColumn(f"{{task.{name}}}", markup=False) for name in ("description", "fields[note]")]
    columns = (texts[0], bars.BarColumn(), *counts, bars.TimeRemainingColumn(), texts[1])
    with bars.Progress(*columns, console=Console()) as bar:
        task = bar.add_task(label, total=total, note="")
        yield lambda done, note: bar.update(task, completed=done, note=visible(note))


def progress_line(label: str, done: int, total: int | None, seconds: float, note: str) -> str:
    """Format a line for a log, such as `[generate] 120/500, 38 a second, 10 s left, 3 quarantined`."""
    rate = done / seconds if seconds > 0 else 0.0
    parts = [f"{done}/{total}" if total is not None else str(done), f"{rate:.0f} a second"]
    if total is not None and rate > 0 and done < total:
        parts.append(f"{(total - done) / rate:.0f} s left")
    return f"[{label}] {listed(parts + ([note] if note else []))}"


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
