"""Report of a comparison, as a page and as terminal tables; all numbers are from comparison.json and predictions."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from components.evaluation.rewriter.measures import METRICS, SYSTEM_METRICS
from components.evaluation.rewriter.report import example
from qinglan.evaluation.gates.evaluation_file import Json, read_predictions
from qinglan.evaluation.metrics import NO_VALUE
from qinglan.evaluation.pages import report as kernel

SHOWN = ("top1", "ndcg", "recall", "judged_top1", "quality", "zero_hit", "copied", "invented", "same", "length")
DIFFERENT = "where they differ"
EXAMPLES = 8
PLAIN_NAME = "no rewrite"
STOOD_IN = "Stand-ins answered in the place of every model: the figures show the method, and no real model."


def write_report(comparison: Json, root: Path) -> None:
    """Write the page; the file is replaced only when the new one is complete."""
    examples = draw_examples(root / "predictions.jsonl", comparison["names"])
    kernel.write_report(build_report(comparison, examples), root / "comparison.html")


def print_comparison(comparison: Json, root: Path) -> None:
    from qinglan.terminal.console import Console, markdown

    console = Console()
    console.print(markdown(kernel.to_markdown(build_report(comparison), notes=True)))
    console.print(f"{root / 'comparison.html'}  {root / 'comparison.json'}", highlight=False, soft_wrap=True)


def headline(word: str, teacher: str | None) -> str:
    """The recommendation as the first line of the report."""
    match word:
        case "better":
            return f"Take {teacher}: better than every other."
        case "as good":
            return f"Take {teacher}: as good as any within the margin, and the cheapest."
        case "tie":
            return f"A tie: take {teacher}, since no other costs less."
        case "not shown":
            return f"Take {teacher}, for now: no difference is shown."
        case "alone":
            return f"Take {teacher}: the only one that gave enough rewrites."
        case _:
            return "None of them can be taken: too few rewrites."


def build_report(comparison: Json, examples: Sequence[Json] = ()) -> kernel.Report:
    counts, settings, taken = comparison["counts"], comparison["settings"], comparison["recommendation"]
    names = {name: name for name in comparison["names"]}
    drawn = kernel.Text(
        "Drawn without looking, one a conversation. The number is the gold passage's place among the first ten."
    )
    stood_in = [STOOD_IN] if settings["stand_ins"] else []
    return kernel.Report(
        headline(taken["word"], taken["take"]),
        taken["word"] in ("better", "as good"),
        f"{counts['rows']:,} rows in {counts['conversations']:,} conversations of {comparison['tenant']}, drawn "
        f"from {counts['training_rows']:,} rows of training; {counts['locked_rows']:,} rows of dev and test were not "
        f"looked at. {comparison['why']}",
        [*stood_in, *taken["lines"]],
        [
            kernel.Section("Each teacher", list(_teachers(comparison))),
            kernel.Section("Who is better than whom", list(_pairs(comparison))),
            kernel.Section(
                "Where they differ", [drawn, kernel.Examples("", [example(row, names) for row in examples])]
            ),
        ],
        [
            *comparison["notes"],
            f"Intervals: {settings['draws']:,} bootstrap draws of whole conversations; p: as many sign flips of "
            f"whole conversations, corrected by Holm over pairs. Seed {settings['seed']}.",
        ],
        comparison["digests"],
    )


def _teachers(comparison: Json) -> Iterator[kernel.Block]:
    systems = {PLAIN_NAME if name == "plain" else name: levels for name, levels in comparison["systems"].items()}
    yield kernel.Figures([kernel.bars(systems, name, METRICS[name]) for name in ("top1", "judged_top1", "quality")])
    table = kernel.levels_table(systems, {name: METRICS[name] for name in SHOWN})
    paid = {name: _paid(levels, comparison["currency"]) for name, levels in systems.items() if "failed" in levels}
    titles = next(iter(paid.values()))
    rows = [[title, *(paid[name][title] if name in paid else "" for name in systems)] for title in titles]
    yield table._replace(rows=[*table.rows, *rows])


def _paid(teacher: Json, currency: str) -> dict[str, str | kernel.Cell]:
    """Format a teacher's model, latency, cost and calls; the plain question has none of these."""
    calls, tokens, failed = teacher["calls"], teacher["tokens"], teacher["failed"]
    cost, price = SYSTEM_METRICS["cost"].number(teacher["cost"]["value"]), teacher["model"]["price"]["as_of"]
    return {
        "model": teacher["model"]["model"],
        **{
            f"{SYSTEM_METRICS[name].name}, live calls": kernel.level_cell(teacher[name], SYSTEM_METRICS[name])
            for name in ("latency_p50", "latency_p95")
        },
        f"cost per 1,000 rewrites given, {currency}": kernel.Cell(cost, f"price of {price}"),
        "tokens an answer, as the service counts: in, out (thought)":
            f"{tokens['input']:.0f}, {tokens['output']:.0f} ({tokens['reasoning']:.0f})",
        "rows without a rewrite": kernel.Cell(
            f"{failed['rows']:,}", ", ".join(f"{reason} {count}" for reason, count in failed["reasons"].items())
        ),
        "calls in the journal: sent, answered, rejected, lost":
            ", ".join(f"{calls[outcome]:,}" for outcome in ("sent", "answered", "rejected", "lost")),
    }  # fmt: skip


def _pairs(comparison: Json) -> Iterator[kernel.Block]:
    unit, deciding = comparison["unit"], METRICS[comparison["deciding"]]
    if unit == "points":
        deciding = deciding._replace(unit="share")
    paired = {f"{gap['one']} − {gap['other']}": gap for gap in comparison["paired"].values()}
    caption = f"{deciding.name}: difference in {unit}, 95 % interval over conversations"
    yield kernel.Figures([kernel.forest(deciding.name, paired, deciding, unit)], caption)
    yield kernel.gaps_table(f"{deciding.name}, {unit}", ((pair, gap, deciding) for pair, gap in paired.items()))
    header = ["", "rows here", "the two differ on", "alike turns cost", "for the difference seen", "for the margin"]
    rows = [[pair, *_power(gap["power"])] for pair, gap in paired.items()]
    yield kernel.Table(header, rows, "How many rows a firm answer needs")
    yield kernel.Text(
        "Paired rows like these that would show such a difference, two-sided at 5 %, with a power of 80 %. The "
        "margin: by so much a cheaper teacher may at most be worse."
    )
    by_metric = (
        (f"{pair}: {METRICS[name].name}", metric_gap, METRICS[name])
        for pair, gap in paired.items()
        for name, metric_gap in gap["metrics"].items()
        if name != comparison["deciding"]
    )
    yield kernel.gaps_table("", by_metric, "By the other metrics", terminal=False)


def _power(power: Json) -> list[str]:
    needed = (f"{rows:,}" if rows else NO_VALUE for rows in (power["needed"], power["needed_for_margin"]))
    return [
        str(power["rows"]),
        METRICS["top1"].number(power["discordant"]),
        f"{power['clustering']:.2f} times",
        *needed,
    ]


def draw_examples(predictions: Path, names: Sequence[str]) -> list[Json]:
    """Pick rows on which the teachers' outcomes differ, at most one from a conversation."""

    def kind_of(row: Json) -> str | None:
        return DIFFERENT if len({_outcome(row, name) for name in names}) > 1 else None

    rows = read_predictions(predictions)
    return kernel.pick_examples(rows, [DIFFERENT], kind_of, EXAMPLES, kernel.conversation_of)[DIFFERENT]


def _outcome(row: Json, name: str) -> Any:
    """Outcome by which teachers differ: whether the gold passage is first; without gold labels, the first passage."""
    answer = row["systems"][name]
    return answer["rank"] == 1 if row["gold"] else tuple(answer["hits"][:1])
