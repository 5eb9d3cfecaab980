"""One self-contained page from evaluation.json, with a few answers to look at. It adds no number of its own."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from components.evaluation.style import formatting
from components.evaluation.style.figures import CoveragePoint, confusion_figure, coverage_figure, reliability_figure
from qinglan.files import atomic_write
from qinglan.leaks import describe_leaks
from qinglan.page import render_page
from qinglan.report_format import format_p_value, format_points
from qinglan.svg_charts import ChartRow, forest_plot

LONGEST = 400
"""Characters of an answer that are shown."""

RELIABILITY = {"before": "before the temperature", "model": "after", "baseline": "baseline"}
Examples = Mapping[str, Sequence[Mapping[str, Any]]]
"""Rows by what is to be seen in them."""


def write_report(evaluation: Mapping[str, Any], examples: Examples, out: Path) -> None:
    """The page, whole or not at all."""
    with atomic_write(out) as partial:
        partial.write_text(render(evaluation, examples), encoding="utf-8")


def render(evaluation: Mapping[str, Any], examples: Examples) -> str:
    """Everything but our own figures is escaped: texts and labels are data."""
    from markupsafe import Markup

    return render_page(
        Path(__file__).parent / "report.html.j2",
        formatting.headline(evaluation),
        e=evaluation,
        examples=examples,
        measures=formatting.MEASURES,
        systems=formatting.SYSTEMS,
        share=formatting.share,
        number=formatting.number,
        interval=formatting.interval,
        gap=formatting.format_difference,
        gaps=formatting.format_difference_interval,
        points=format_points,
        p_value=format_p_value,
        leaks=describe_leaks(evaluation.get("leaks")),
        longest=LONGEST,
        differences=Markup(differences(evaluation)),
        confusions=[Markup(one) for one in confusions(evaluation)],
        reliability=[Markup(one) for one in reliability(evaluation)],
        coverage=[Markup(one) for one in coverage(evaluation)],
    )


def differences(evaluation: Mapping[str, Any]) -> str:
    """Model minus baseline in points: over all labels, then label by label."""
    pair = evaluation["paired"]["model_vs_baseline"]
    rows = {formatting.MEASURES[name]: pair[name] for name in ("accuracy", "macro_f1", "weighted_f1")}
    rows |= {f"F1 of {label}": found for label, found in pair["f1"].items()}
    return forest_plot("Model minus baseline", [_line(name, found) for name, found in rows.items()])


def _line(name: str, found: Mapping[str, Any]) -> ChartRow:
    value, low, high = (None if found[one] is None else 100 * found[one] for one in ("difference", "low", "high"))
    return ChartRow(name, value, low, high, f"{format_points(found['difference'])} pts")


def confusions(evaluation: Mapping[str, Any]) -> list[str]:
    return [
        confusion_figure(formatting.SYSTEMS[name], evaluation["labels"], evaluation["systems"][name]["confusion"])
        for name in ("model", "baseline")
    ]


def reliability(evaluation: Mapping[str, Any]) -> list[str]:
    return [
        reliability_figure(f"{words}: ECE {formatting.share(found['ece']['value'])}", found["bins"])
        for name, words in RELIABILITY.items()
        if (found := evaluation["systems"][name])
    ]


def coverage(evaluation: Mapping[str, Any]) -> list[str]:
    """A figure for each measure; a step without an interval is left out."""
    return [
        coverage_figure(
            formatting.MEASURES[name],
            {
                system: [
                    CoveragePoint(step["coverage"], *(step[name][one] for one in ("value", "low", "high")))
                    for step in steps
                    if None not in step[name].values()
                ]
                for system, steps in evaluation["abstention"].items()
            },
        )
        for name in ("accuracy", "macro_f1")
    ]
