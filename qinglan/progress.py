"""Progress of long work: a bar on a terminal, one plain line every few seconds in a log."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

EVERY_SECONDS = 2.0


class Tick(Protocol):
    def __call__(self, note: str = "") -> None: ...


class Show(Protocol):
    def __call__(self, step: int, total: int, note: str = "") -> None: ...


@contextmanager
def steps(label: str) -> Iterator[Show]:
    """For a program that counts its own steps: a function to call with where it is."""
    started = time.monotonic()
    printed = -EVERY_SECONDS

    def show(step: int, total: int, note: str = "") -> None:
        nonlocal printed
        now = time.monotonic()
        if step >= total or now - printed >= EVERY_SECONDS:
            printed = now
            left = f"{(now - started) / step * (total - step):.0f} s left" if 0 < step < total else ""
            print(
                f"[{label}] " + ", ".join(part for part in (f"step {step}/{total}", note, left) if part), flush=True
            )

    yield show


@contextmanager
def progress(label: str, total: int | None = None) -> Iterator[Tick]:
    """A function to call once per finished item."""
    if sys.stdout.isatty():
        with _bar(label, total) as tick:
            yield tick
    else:
        with _lines(label, total) as tick:
            yield tick


@contextmanager
def _bar(label: str, total: int | None) -> Iterator[Tick]:
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    with Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[note]}"),
    ) as bar:
        task = bar.add_task(label, total=total, note="")
        yield lambda note="": bar.update(task, advance=1, note=note)


@contextmanager
def _lines(label: str, total: int | None) -> Iterator[Tick]:
    started = printed = time.monotonic()
    done, last_note = 0, ""

    def say() -> None:
        print(progress_line(label, done, total, time.monotonic() - started, last_note), flush=True)

    def tick(note: str = "") -> None:
        nonlocal done, printed, last_note
        done, last_note = done + 1, note
        if time.monotonic() - printed >= EVERY_SECONDS:
            printed = time.monotonic()
            say()

    yield tick
    say()


def progress_line(label: str, done: int, total: int | None, seconds: float, note: str) -> str:
    """What a log shows: `[generate] 120/500, 38 a second, 10 s left, 3 quarantined`."""
    rate = done / seconds if seconds > 0 else 0.0
    parts = [f"{done}/{total}" if total is not None else str(done), f"{rate:.0f} a second"]
    if total is not None and rate > 0 and done < total:
        parts.append(f"{(total - done) / rate:.0f} s left")
    return f"[{label}] " + ", ".join(parts + ([note] if note else []))
