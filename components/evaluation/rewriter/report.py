"""One self-contained page from evaluation.json, predictions and training logs. It adds no number of its own."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from components.evaluation.rewriter import wording
from components.evaluation.rewriter.examples import pick
from components.evaluation.rewriter.trained import curves
from qinglan.drawings import Line, bars, forest
from qinglan.files import replaced
from qinglan.leaks import in_words
from qinglan.page import rendered
from qinglan.wording import p_value, points

COLOURS = {"plain": "#9aa3ad", "history": "#b8a06a", "teacher": "#7a4fa3", "sft": "#5b8db8", "rl": "#1f5fa8"}
COMPARED = {"": "gold passage first", "ndcg": "nDCG@10", "recall": "recall@10"}


def write_report(
    evaluation: Mapping[str, Any], predictions: Path, logs: Mapping[str, Path], report: Path, examples: int
) -> None:
    """The page, whole or not at all."""
    page = render(evaluation, pick(predictions, evaluation["candidate"], examples), curves(logs))
    with replaced(report) as partial:
        partial.write_text(page, encoding="utf-8")


def render(
    evaluation: Mapping[str, Any], examples: Mapping[str, list[dict[str, Any]]], trained: Mapping[str, list[str]]
) -> str:
    """Everything but our own figures is escaped: questions and rewrites are data."""
    from markupsafe import Markup

    return rendered(
        Path(__file__).parent / "report.html.j2", wording.headline(evaluation), e=evaluation, examples=examples,
        names=wording.NAMES, metrics=wording.ALL_METRICS, plan=wording.PLAN, number=wording.number,
        interval=wording.interval, points=points, p_value=p_value, pair_name=wording.pair_name,
        by_metric=wording.by_metric, gap=wording.gap, leaks=in_words(evaluation.get("leaks")),
        forests=[Markup(forest(title, differences(evaluation, metric))) for metric, title in COMPARED.items()],
        titles=list(COMPARED.values()),
        levels=[Markup(levels(evaluation, metric)) for metric in ("top1", "ndcg", "recall", "quality")],
        trained={stage: [Markup(one) for one in figures] for stage, figures in trained.items()},
    )  # fmt: skip


def differences(evaluation: Mapping[str, Any], metric: str) -> list[Line]:
    """Each pair's difference in points."""
    lines = []
    for name, one in evaluation["paired"].items():
        found = one[metric] if metric else one
        value, low, high = (None if found[x] is None else 100 * found[x] for x in ("difference", "low", "high"))
        lines.append(Line(wording.pair_name(name), value, low, high, f"{points(found['difference'])} pts"))
    return lines


def levels(evaluation: Mapping[str, Any], metric: str) -> str:
    """Each system's level in one metric."""
    lines = [
        Line(
            wording.NAMES[name], found[metric]["value"], found[metric]["low"], found[metric]["high"],
            wording.number(found[metric]["value"], metric), COLOURS[name],
        )
        for name, found in evaluation["systems"].items()
    ]  # fmt: skip
    return bars(wording.ALL_METRICS[metric].name, lines, 5.0 if metric == "quality" else 1.0)
