"""Format the label report as lines, for a log and a run's summary."""

from collections.abc import Mapping, Sequence
from typing import Any

from components.data.label.measure import in_words
from qinglan.terminal import visible

SHOWN = 5
"""Highest number of rows or passages that one line names."""


def report_lines(report: Mapping[str, Any]) -> list[str]:
    """Return lines on the outcomes of the labels and the agreement of the judges; no lines if no judge was called."""
    if not report:
        return []
    outcomes = ", ".join(f"{name} {count:,}" for name, count in report["outcomes"].items())
    again = report["confirmed_by"]["sample"]
    confirmed = "the judge, asked once more" if again else "the examiner"
    lines = [
        f"rows without gold: {outcomes}; {report['calls']:,} calls",
        f"relevant for the judge, confirmed by {confirmed}: {in_words(report['second_judge_agrees'])}",
    ]
    for what, measured in (
        ("gold passages called relevant", report["gold"]["gold_called_relevant"]),
        ("other passages of these rows called not relevant", report["gold"]["others_called_not"]),
        ("judges and people agree", report["people_agree"]),
    ):
        if measured["n"]:
            lines.append(f"{what}: {in_words(measured)}")
    lines += _corrections(report)
    if again:
        lines.append("warn: judge and examiner are one model; name another as gateway.examiner")
    return lines


def _corrections(report: Mapping[str, Any]) -> list[str]:
    unused = report.get("unused_corrections", {})  # reports of earlier versions lack it
    lines = []
    if unknown := unused.get("unknown"):
        lines.append(f"warn: {len(unknown):,} corrected rows are unknown in this run: {_first(unknown)}")
    if gold := unused.get("with_gold"):
        lines.append(f"warn: {len(gold):,} corrected rows have gold passages, so no grade is used: {_first(gold)}")
    if people := report.get("graded_by_people_only"):
        lines.append(
            f"warn: {len(people):,} passages were graded by people only; a mistyped id would count as an answer: "
            f"{_first(people)}"
        )
    return lines


def _first(names: Sequence[str]) -> str:
    more = [f"and {len(names) - SHOWN:,} more"] if len(names) > SHOWN else []
    return ", ".join([*map(visible, names[:SHOWN]), *more])
