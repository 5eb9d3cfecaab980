"""Show the progress of a run's steps: a tree on a terminal, a line per change in a log."""

import re
import sys
import time
from collections.abc import Collection, Iterator, Sequence
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from pipelines.execute.rundir import RunDir
from qinglan.evaluation.gates.verdict import DIGEST
from qinglan.live.outlets import read_trainings
from qinglan.terminal import in_language, listed, say

MARKS = {"waiting": "·", "running": "▶", "done": "✓", "failed": "✗"}
LINE_SECONDS = 30.0
"""Seconds between two lines about a running step in a log, in which no line can be overwritten."""

SHOWN_FACTS = 3
"""Number of facts at the beginning and at the end of a step's line; summary.txt has all of them."""

FIGURES = re.compile(r"(\w+ )*\d[\d,]*(/\d+)?(, |$)")
"""The beginning of a line of progress, such as `rl 3/40, 2 a second` or `step 3/8, loss 0.2`."""

SHARES = {
    "plain_top1": "gold passage first by the plain question",
    "rewritten_top1": "by the teacher's rewrite",
}
"""Names of two shares of the labelled rows, by the fact of `validate` that counts them; the test is left out."""

STYLES = {"waiting": "dim", "running": "cyan", "done": "green", "failed": "red"}


class StepDisplay:
    """Display of the steps' records and the log's last progress lines; call update() regularly."""

    def __init__(self, run: RunDir, stages: tuple[str, ...], log: Path, quiet: bool) -> None:
        self._run, self._stages, self._log, self._quiet = run, stages, log, quiet
        self._printed: dict[str, tuple[str, str]] = {}
        self._announced = False
        self._alarms = set[str]()
        self._last_line = time.monotonic()
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
        alarms = list(alarm_lines(self._run, self._stages))
        states = [step_line(stage, self._run.step_record(stage), self._progress(stage)) for stage in self._stages]
        page = self._run.live_page if self._trains(states) else None
        if self._screen is not None:
            self._screen.update(_tree(self._run.root.name, states, page, alarms))
        else:
            self._say(states)
            for line in [line for line in alarms if line not in self._alarms]:
                say(line)
                self._alarms.add(line)
            if not self._announced and self._trains(states):  # the page shows every training of the run
                self._announced = True
                say(f"  Trainings while they run: {self._run.live_page}")

    def _trains(self, states: list[tuple[str, str, str]]) -> list[str]:
        """Return the running stages that write live figures of a training."""
        return [stage for stage, status, _ in states if status == "running" and any(self._run.live.glob(f"{stage}*"))]

    def _progress(self, stage: str) -> str:
        """Read the stage's newest progress line: the text after `[stage]`, or after `[stage part]`."""
        try:
            with self._log.open("rb") as file:
                # The newest progress line is in the last 4 KiB; a log of a training may have hundreds of MB.
                file.seek(max(0, self._log.stat().st_size - 4096))
                tail = file.read().decode("utf-8", errors="replace")
        except FileNotFoundError:
            return ""
        progress = re.findall(rf"^\s*\[{stage}( [\w ]+)?\] (.*)$", tail, re.MULTILINE)
        return " ".join(progress[-1]).strip() if progress else ""

    def _say(self, states: list[tuple[str, str, str]]) -> None:
        """Print a line when a step ends, and a line with a running step's progress every LINE_SECONDS."""
        for stage, status, text in states:
            news = status != "waiting" and (status, text) != self._printed.get(stage)
            if news and (status != "running" or time.monotonic() - self._last_line > LINE_SECONDS):
                self._printed[stage], self._last_line = (status, text), time.monotonic()
                say(f"{MARKS[status]} {stage} {in_language(status)} {text_in_language(text)}".rstrip())


def alarm_lines(run: RunDir, stages: Collection[str]) -> Iterator[str]:
    for training in read_trainings(run.live):
        if training.stage.partition("-")[0] in stages:
            for alarm in training.alarms:
                yield f"! {training.stage}, step {alarm.step}: {alarm.message}"


def step_line(stage: str, record: dict[str, Any] | None, progress: str) -> tuple[str, str, str]:
    """Return a step's name, its state, and a text about it."""
    if record is None:
        return stage, "waiting", ""
    if record["status"] == "running":
        return stage, "running", progress
    text = in_language(f"{duration_seconds(record):.1f} s")
    if record["status"] == "done":
        text = f"{text}  {format_facts(record['facts'], SHOWN_FACTS)}"
    return stage, record["status"], text


def format_facts(facts: dict[str, Any], ends: int = 0) -> str:
    """Format a step's counts; integers that are 0 and empty texts are left out.

    With `ends`, only that many of the first and of the last counts are shown.
    """
    if (labelled := facts.get("labelled")) and "rewritten_top1" in facts:  # shares say more than these two counts
        shares = {words: f"{facts[name] / labelled:.1%}" for name, words in SHARES.items()}
        facts = {name: value for name, value in facts.items() if name not in SHARES} | shares
    texts = [
        f"{in_language(name.replace('_', ' '))} {_shown(value)}"
        for name, value in facts.items()
        if isinstance(value, float) or (isinstance(value, int | str) and value)
    ]
    return listed([*texts[:ends], "...", *texts[-ends:]] if 0 < 2 * ends < len(texts) else texts)


def text_in_language(text: str) -> str:
    """Translate the newest line of a step, which is English: a sentence as a whole, figures one by one."""
    return listed(map(_figure_in_language, text.split(", "))) if FIGURES.match(text) else in_language(text)


def _figure_in_language(text: str) -> str:
    """Translate a figure with its name, such as `gold on dev 0.877`, or only the name if no template has both."""
    name, _, value = text.rpartition(" ")
    shown = in_language(text)
    return f"{in_language(name)} {value}" if shown == text and name else shown


def _shown(value: int | float | str) -> str:
    if isinstance(value, str):
        return value[:12] if DIGEST.fullmatch(value) else in_language(value)
    return f"{value:,}" if isinstance(value, int) else f"{value:,.3f}"


def duration_seconds(record: dict[str, Any]) -> float:
    ended, started = (datetime.fromisoformat(record[name]) for name in ("ended", "started"))
    return (ended - started).total_seconds()


def _tree(name: str, states: list[tuple[str, str, str]], page: Path | None, alarms: Sequence[str]) -> Any:
    from rich.tree import Tree

    from qinglan.terminal.console import styled

    tree = Tree(styled((name, "bold")))
    for stage, status, text in states:
        tree.add(styled((f"{MARKS[status]} {stage:<10}", STYLES[status]), f" {text_in_language(text)}"))
    for line in alarms:
        tree.add(styled((in_language(line), "yellow")))
    if page is not None:
        tree.add(styled((in_language(f"Trainings while they run: {page}"), "dim")))
    return tree
