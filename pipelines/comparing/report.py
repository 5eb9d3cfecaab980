"""One self-contained page from comparison.json and predictions, and a table for the terminal. It adds no number."""

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import orjson

from components.evaluation.rewriter.formatting import interval, number
from components.evaluation.rewriter.measures import METRICS
from qinglan.files import atomic_write
from qinglan.page import render_page
from qinglan.report_format import NO_VALUE, format_p_value, format_points
from qinglan.svg_charts import ChartRow, bar_chart, forest_plot

SHOWN = ("top1", "ndcg", "recall", "judged_top1", "quality", "zero_hit", "copied", "invented", "same", "length")
SHORT = ("top1", "judged_top1", "quality", "zero_hit")
EXAMPLES = 8
PLAIN_NAME = "no rewrite"
WORDS = {
    "better": "{take}: better than every other",
    "as good": "{take}: as good as any within the margin, and the cheapest",
    "not shown": "{take}, for now: no difference is shown",
    "alone": "{take}: the only one that gave enough rewrites",
    "none": "None of them can be taken: too few rewrites",
}
Json = dict[str, Any]


def write_report(comparison: Json, root: Path) -> None:
    """The page, whole or not at all."""
    page = render(comparison, pick(root / "predictions.jsonl", comparison["names"], EXAMPLES))
    with atomic_write(root / "comparison.html") as partial:
        partial.write_text(page, encoding="utf-8")


def render(comparison: Json, examples: list[Json]) -> str:
    """Everything but our own figures is escaped: questions and rewrites are data."""
    from markupsafe import Markup

    metric = comparison["deciding"]
    return render_page(
        Path(__file__).parent / "report.html.j2", headline(comparison), c=comparison, examples=examples,
        metrics=METRICS, shown=SHOWN, number=number, interval=interval, points=format_points, p_value=format_p_value,
        difference=difference, money=money, milliseconds=milliseconds, plain_name=PLAIN_NAME,
        forest=Markup(forest_plot(METRICS[metric].name, gaps(comparison), unit=comparison["unit"])),
        levels=[Markup(levels(comparison, one)) for one in ("top1", "judged_top1", "quality")],
    )  # fmt: skip


def headline(comparison: Json) -> str:
    found = comparison["recommendation"]
    return WORDS[found["word"]].format(take=found["take"])


def gaps(comparison: Json) -> list[ChartRow]:
    """Each pair's difference in the deciding metric."""
    scale = 100.0 if comparison["unit"] == "points" else 1.0
    lines = []
    for one in comparison["paired"].values():
        value, low, high = (None if one[x] is None else scale * one[x] for x in ("difference", "low", "high"))
        lines.append(
            ChartRow(f"{one['one']} − {one['other']}", value, low, high, difference(one, comparison["unit"]))
        )
    return lines


def levels(comparison: Json, metric: str) -> str:
    """Each teacher's level in one metric, the plain question's first."""
    lines = [
        ChartRow(PLAIN_NAME if name == "plain" else name, found[metric]["value"], found[metric]["low"],
             found[metric]["high"], number(found[metric]["value"], metric))
        for name, found in comparison["systems"].items()
    ]  # fmt: skip
    return bar_chart(METRICS[metric].name, lines, 5.0 if metric == "quality" else 1.0)


def difference(found: Mapping[str, Any], unit: str, key: str = "difference") -> str:
    value = found[key]
    if value is None:
        return NO_VALUE
    return f"{100 * value:+z.1f}" if unit == "points" else f"{value:+z.2f}"


def money(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, int | float) else NO_VALUE


def milliseconds(value: Any) -> str:
    return f"{value:,.0f} ms" if isinstance(value, int | float) else NO_VALUE


def pick(predictions: Path, names: list[str], wanted: int) -> list[Json]:
    """Rows on which some teacher finds the gold passage first and another does not, one a conversation; the order
    has nothing to do with their content."""
    found: dict[tuple[str, str], tuple[bytes, Json]] = {}
    with predictions.open("rb") as file:
        for line in file:
            row: Json = orjson.loads(line)
            if len({outcome(row, name) for name in names}) > 1:
                found.setdefault(
                    (row["tenant_id"], row["conversation_id"]),
                    (hashlib.sha256(str(row["id"]).encode()).digest(), row),
                )
    return [row for _, row in sorted(found.values(), key=lambda pair: pair[0])[:wanted]]


def outcome(row: Json, name: str) -> Any:
    """What tells teachers apart on a row: the gold passage first or not; without gold, what was found first."""
    one = row["systems"][name]
    return one["rank"] == 1 if row["gold"] else one["hits"][:1]


def print_comparison(comparison: Json, root: Path) -> None:
    from qinglan.terminal.console import Console

    console = Console()
    console.print(_table(comparison))
    console.print(f"{headline(comparison)}.", style="bold", highlight=False)
    for line in comparison["recommendation"]["lines"]:
        console.print(f" • {line}", highlight=False)
    console.print(comparison["why"], highlight=False)
    for note in comparison["notes"]:
        console.print(f"   {note}", style="dim", highlight=False)
    console.print(f"{root / 'comparison.html'}  {root / 'comparison.json'}", highlight=False, soft_wrap=True)


def _table(comparison: Json) -> Any:
    from rich.console import Group
    from rich.table import Table

    rows = comparison["counts"]["rows"]
    table = Table(title=f"Teachers of {comparison['tenant']}, {rows:,} rows of training", title_justify="left")
    names = list(comparison["systems"])
    table.add_column("")
    for name in names:
        table.add_column(PLAIN_NAME if name == "plain" else name, justify="right")
    for metric in SHORT:
        cells = [comparison["systems"][name][metric] for name in names]
        table.add_row(METRICS[metric].name, *(Group(number(x["value"], metric), interval(x, metric)) for x in cells))
    for title, said in _of_teacher(comparison["currency"]).items():
        found = [comparison["systems"][name] for name in names]
        table.add_row(title, *(said(x) if "failed" in x else "" for x in found))
    return table


def _of_teacher(currency: str) -> dict[str, Any]:
    """The rows of the table that the plain question has not."""
    return {
        "latency, median": lambda x: milliseconds(x["latency_p50"]["value"]),
        "latency, 95th percentile": lambda x: milliseconds(x["latency_p95"]["value"]),
        f"cost per 1,000 rewrites, {currency}": lambda x: money(x["cost"]["value"]),
        "rows without a rewrite": lambda x: reasons(x["failed"]),
        "calls sent, lost": lambda x: f"{x['calls']['sent']:,}, {x['calls']['lost']:,}",
    }


def reasons(failed: Mapping[str, Any]) -> str:
    said = ", ".join(f"{reason} {count}" for reason, count in failed["reasons"].items())
    return f"{failed['rows']:,}" + (f" ({said})" if said else "")
