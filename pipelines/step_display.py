"""Show the progress of a run's steps: a tree on a terminal, a line per change in a log."""

import re
import sys
import time
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from pipelines.rundir import RunDir
from qinglan.terminal import in_language, listed, say

MARKS = {"waiting": "·", "running": "▶", "done": "✓", "failed": "✗"}
LINE_SECONDS = 5.0
FIGURES = re.compile(r"(\w+ )*\d[\d,]*(/\d+)?(, |$)")
"""The beginning of a line of progress, such as `rl 3/40, 2 a second` or `step 3/8, loss 0.2`."""

STYLES = {"waiting": "dim", "running": "cyan", "done": "green", "failed": "red"}


class StepDisplay:
    """Display of the steps' records and the log's last progress lines; call update() regularly."""

    def __init__(self, run: RunDir, stages: tuple[str, ...], log: Path, quiet: bool) -> None:
        self._run, self._stages, self._log, self._quiet = run, stages, log, quiet
        self._printed: dict[str, tuple[str, str]] = {}
        self._announced: set[str] = set()
        self._last_line = 0.0
        self._screen: Any = None

    def __enter__(self) -> Self:
        if not self._quiet and sys.stdout.isatty():
            from rich.live import Live as Screen

            from qinglan.terminal.console import Console

            self._screen = Screen(console=Console(), refresh_per_second=5)
            self._screen.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._screen is not None:
            self._screen.__exit__(kind, error, trace)

    def update(self) -> None:
        if self._quiet:
            return
        states = [step_line(stage, self._run.step_record(stage), self._progress(stage)) for stage in self._stages]
        page = self._run.live_page if self._trains(states) else None
        if self._screen is not None:
            self._screen.update(_tree(self._run.root.name, states, page))
        else:
            self._say(states)
            self._announce(states)

    def _trains(self, states: list[tuple[str, str, str]]) -> list[str]:
        """The running stages that show themselves while they train."""
        return [stage for stage, status, _ in states if status == "running" and (self._run.live / stage).is_dir()]

    def _announce(self, states: list[tuple[str, str, str]]) -> None:
        """Print once where a training shows itself."""
        for stage in self._trains(states):
            if stage not in self._announced:
                self._announced.add(stage)
                say(f"  {stage} while it trains: {self._run.live_page}")

    def _progress(self, stage: str) -> str:
        """Read the stage's newest progress line: the text after `[stage]`, or after `[stage part]`."""
        try:
            with self._log.open("rb") as file:
                file.seek(max(0, self._log.stat().st_size - 4096))
                tail = file.read().decode("utf-8", errors="replace")
        except FileNotFoundError:
            return ""
        progress = re.findall(rf"^\s*\[{stage}( [\w ]+)?\] (.*)$", tail, re.MULTILINE)
        return " ".join(progress[-1]).strip() if progress else ""

    def _say(self, states: list[tuple[str, str, str]]) -> None:
        """Print a line when a step changes, and one every few seconds while it runs."""
        for stage, status, text in states:
            before = self._printed.get(stage, ("waiting", ""))
            news = status != before[0]
            due = text not in ("", before[1]) and time.monotonic() - self._last_line > LINE_SECONDS
            if news or (status == "running" and due):
                self._printed[stage], self._last_line = (status, text), time.monotonic()
                say(f"{MARKS[status]} {stage} {in_language(status)} {text_in_language(text)}".rstrip())


def step_line(stage: str, record: dict[str, Any] | None, progress: str) -> tuple[str, str, str]:
    """Return a step's name, its state, and a text about it."""
    if record is None:
        return stage, "waiting", ""
    if record["status"] == "running":
        return stage, "running", progress
    text = in_language(f"{duration_seconds(record):.1f} s")
    if record["status"] == "done":
        text = f"{text}  {format_facts(record['facts'])}"
    return stage, record["status"], text


def format_facts(facts: dict[str, Any]) -> str:
    """Format a step's counts; integers that are 0 and empty texts are left out."""
    counts = ((figure_name(name), value) for name, value in facts.items() if _counts(value))
    return listed(f"{in_language(name)} {_shown(value)}" for name, value in counts)


def text_in_language(text: str) -> str:
    """The newest line of a step, whose process writes English: a sentence, or figures one by one."""
    return listed(map(_figure_in_language, text.split(", "))) if FIGURES.match(text) else in_language(text)


def _figure_in_language(text: str) -> str:
    """A figure with its name, such as `gold on dev 0.877`; a name that has no template with its number by itself."""
    name, _, value = text.rpartition(" ")
    shown = in_language(text)
    return f"{in_language(name)} {value}" if shown == text and name else shown


def figure_name(name: str) -> str:
    """The name of a step's count as a person reads it."""
    return name.replace("_", " ")


def _counts(value: Any) -> bool:
    return isinstance(value, float) or (isinstance(value, int | str) and bool(value))


def _shown(value: int | float | str) -> str:
    if isinstance(value, str):
        return in_language(value)
    return f"{value:,}" if isinstance(value, int) else f"{value:,.3f}"


def duration_seconds(record: dict[str, Any]) -> float:
    ended, started = (datetime.fromisoformat(record[name]) for name in ("ended", "started"))
    return (ended - started).total_seconds()


def _tree(name: str, states: list[tuple[str, str, str]], page: Path | None) -> Any:
    from rich.tree import Tree

    from qinglan.terminal.console import styled

    tree = Tree(styled((name, "bold")))
    for stage, status, text in states:
        tree.add(styled((f"{MARKS[status]} {stage:<10}", STYLES[status]), f" {text_in_language(text)}"))
    if page is not None:
        tree.add(styled((in_language(f"while it trains: {page}"), "dim")))
    return tree
