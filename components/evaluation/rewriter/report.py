"""One self-contained page from evaluation.json, predictions and training logs. It adds no number of its own."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from components.evaluation.rewriter import formatting
from components.evaluation.rewriter.examples import pick_examples
from components.evaluation.rewriter.training_curves import curves
from qinglan.files import atomic_write
from qinglan.leaks import describe_leaks
from qinglan.page import render_page
from qinglan.report_format import format_p_value, format_points
from qinglan.svg_charts import ChartRow, bar_chart, forest_plot

COLOURS = {"plain": "#9aa3ad", "history": "#b8a06a", "teacher": "#7a4fa3", "sft": "#5b8db8", "rl": "#1f5fa8"}
COMPARED = {"": "gold passage first", "ndcg": "nDCG@10", "recall": "recall@10"}


def write_report(
    evaluation: Mapping[str, Any], predictions: Path, logs: Mapping[str, Path], report: Path, examples: int
) -> None:
    """The page, whole or not at all."""
    page = render(evaluation, pick_examples(predictions, evaluation["candidate"], examples), curves(logs))
    with atomic_write(report) as partial:
        partial.write_text(page, encoding="utf-8")


def render(
    evaluation: Mapping[str, Any], examples: Mapping[str, list[dict[str, Any]]], trained: Mapping[str, list[str]]
) -> str:
    """Everything but our own figures is escaped: questions and rewrites are data."""
    from markupsafe import Markup

    return render_page(
        Path(__file__).parent / "report.html.j2",
        formatting.headline(evaluation),
        e=evaluation,
        examples=examples,
        names=formatting.NAMES,
        metrics=formatting.ALL_METRICS,
        plan=formatting.PLAN,
        number=formatting.number,
        interval=formatting.interval,
        points=format_points,
        p_value=format_p_value,
        pair_name=formatting.pair_name,
        by_metric=formatting.metric_differences,
        gap=formatting.format_difference,
        leaks=describe_leaks(evaluation.get("leaks")),
        forests=[Markup(forest_plot(title, differences(evaluation, metric))) for metric, title in COMPARED.items()],
        titles=list(COMPARED.values()),
        levels=[Markup(levels(evaluation, metric)) for metric in ("top1", "ndcg", "recall", "quality")],
        trained={stage: [Markup(one) for one in figures] for stage, figures in trained.items()},
    )


def differences(evaluation: Mapping[str, Any], metric: str) -> list[ChartRow]:
    """Each pair's difference in points."""
    lines = []
    for name, one in evaluation["paired"].items():
        found = one[metric] if metric else one
        value, low, high = (None if found[x] is None else 100 * found[x] for x in ("difference", "low", "high"))
        lines.append(
            ChartRow(formatting.pair_name(name), value, low, high, f"{format_points(found['difference'])} pts")
        )
    return lines


def levels(evaluation: Mapping[str, Any], metric: str) -> str:
    """Each system's level in one metric."""
    lines = [
        ChartRow(
            formatting.NAMES[name], found[metric]["value"], found[metric]["low"], found[metric]["high"],
            formatting.number(found[metric]["value"], metric), COLOURS[name],
        )
        for name, found in evaluation["systems"].items()
    ]  # fmt: skip
    return bar_chart(formatting.ALL_METRICS[metric].name, lines, 5.0 if metric == "quality" else 1.0)
