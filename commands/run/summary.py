"""The end of a run for people: a screen (end_screen.py), and RUN/summary.txt with all that does not fit on it."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from commands.run.end_screen import (
    ROW_COUNTS,
    answered_calls,
    gated_evaluation,
    is_done,
    journal_share,
    lost_row_lines,
    print_screen,
    print_style_screen,
)
from commands.run.gains import gain_lines
from pipelines.execute.rundir import ARTIFACT_FILES, RunDir
from pipelines.execute.step_display import duration_seconds, format_facts
from pipelines.lines.line import Line
from pipelines.lines.rewriter import REWRITER, RunConfig
from pipelines.lines.style import STYLE
from qinglan.files.files import PRIVATE, atomic_write
from qinglan.terminal import in_language

SUMMARY_WIDTH = 160
"""Columns of summary.txt: wide enough that no table of it folds a cell."""


FUNNEL = (*ROW_COUNTS[:2], ("answered by the RAG", "validate", "validated"), *ROW_COUNTS[2:])
"""The counts of rows in the summary: name, stage and fact."""

LEFT_OUT = (
    ("near duplicates of dev or test", "convert", "near_duplicates", "left_out"),
    ("left out for balance between tenants", "convert", "left_out_for_balance", "left_out"),
    ("without gold or a relevant label: not in PPO", "convert", "nothing_relevant", "left_out"),
    ("chats too long for SFT", "sft", "too_long", "sft_log"),
    ("prompts too long for PPO", "ppo", "too_long", "ppo_log"),
)
"""Rows left out of training: the reason, the stage and fact that count them, and the artifact that lists them."""


def left_out(steps: dict[str, Any]) -> list[tuple[str, int, str]]:
    """List why training leaves out rows that passed the checks before: each reason with the number of rows and the
    file that lists them."""
    facts = {stage: (record or {}).get("facts") or {} for stage, record in steps.items()}
    counted = [(why, facts.get(stage, {}).get(fact, 0), ARTIFACT_FILES[name]) for why, stage, fact, name in LEFT_OUT]
    return [(why, rows, file) for why, rows, file in counted if rows]


def print_summary(config: RunConfig, root: Path, record: dict[str, Any]) -> None:
    """Print the screen that ends a run, and write everything else to its summary.txt."""
    from components.evaluation.rewriter.report import to_markdown
    from qinglan.terminal.console import markdown

    run = RunDir(root)
    with written_summary(run) as console:
        console.print(steps_table(record["steps"]))
        console.print(_funnel_table(record["steps"]))
        for why, rows, file in left_out(record["steps"]):
            console.print(f"  {rows:,} rows {why}: {run.files / file}", highlight=False, soft_wrap=True)
        for line in (
            *lost_row_lines(run, record),
            *label_lines(run),
            *augment_lines(run),
            *gain_lines(run, config),
        ):
            console.print(f"  {line}", highlight=False, soft_wrap=True)
        console.print(_totals_table(config, record))
        if evaluation := gated_evaluation(run, record):
            console.print(markdown(to_markdown(evaluation)))
        print_files(console, REWRITER, run, "config.yaml, run.json, records/, logs/, journal.sqlite")
    print_screen(config, run, record)


@contextmanager
def written_summary(run: RunDir) -> Iterator[Any]:
    """A console that writes the run's summary.txt, whole or not at all."""
    from qinglan.terminal.console import Console

    with atomic_write(run.summary, mode=PRIVATE) as partial, partial.open("w", encoding="utf-8") as file:
        yield Console(file=file, width=SUMMARY_WIDTH)


def label_lines(run: RunDir) -> list[str]:
    """Lines on how far the judges of a run's labels can be trusted; empty if every row has gold."""
    import orjson

    from components.data.label.report import report_lines

    path = run.shown("label_report")
    lines = report_lines(orjson.loads(path.read_bytes())) if path.exists() else []
    return ["Labels by judges, not gold:", *lines] if lines else []


def augment_lines(run: RunDir) -> list[str]:
    """Counts of the further rows by the teacher; empty if the profile asks for none."""
    import orjson

    from components.data.augment.report import report_lines

    path = run.shown("augment_report")
    lines = report_lines(orjson.loads(path.read_bytes())) if path.exists() else []
    return ["Further rows by the teacher:", *lines] if lines else []


def print_style_summary(root: Path, record: dict[str, Any]) -> None:
    """Print the screen that ends a style model's run, and write everything else to its summary.txt."""
    import orjson

    from components.evaluation.style.report import to_markdown as evaluated
    from components.training.style.distil import to_markdown as sizes
    from qinglan.terminal.console import markdown

    run = RunDir(root)
    with written_summary(run) as console:
        console.print(steps_table({stage: record["steps"][stage] for stage in record["ran"]}))
        if is_done(record, "evaluate"):
            console.print(markdown(evaluated(orjson.loads(run.shown("evaluation").read_bytes()))))
        if is_done(record, "distil"):
            console.print(markdown(sizes(run.shown("distil_table"))))
        print_files(console, STYLE, run, "config.yaml, run.json, records/, logs/")
    print_style_screen(run, record)


def print_files(console: Any, line: Line, run: RunDir, rest: str) -> None:
    """Print the paths of the run's artifacts, and its folder with the other files."""
    console.print("Files:")
    for name in line.files.values():
        if (run.files / name).exists():
            console.print(f"  {run.files / name}", highlight=False, soft_wrap=True)
    console.print(f"  {run.root}: {rest}", highlight=False)


def print_human_scores(scores: dict[str, Any]) -> None:
    """Print people's scores by system, and their agreement with the examiner."""
    from rich.table import Table

    from qinglan.terminal.console import Console

    table = Table(title="People's scores, 1 to 5", title_justify="left")
    for column in ("system", "mean", "95 %", "rewrites"):
        table.add_column(column, justify="left" if column == "system" else "right")
    for name, score in scores["systems"].items():
        table.add_row(name, f"{score['value']:.2f}", f"{score['low']:.2f} to {score['high']:.2f}", f"{score['n']:,}")
    console = Console()
    console.print(table)
    agreed = scores["agreement"]
    console.print(
        f"With the examiner on {agreed['n']:,} rewrites: rank correlation {agreed['spearman']:.2f} (Spearman), "
        f"{agreed['kendall']:.2f} (Kendall); {agreed['mean_difference']:.2f} points apart on average.",
        highlight=False,
    )


def steps_table(steps: dict[str, Any]) -> Any:
    from rich.table import Table

    table = Table(title="Steps", title_justify="left")
    for column in ("step", "state", "seconds", "what came of it"):
        table.add_column(column, justify="right" if column == "seconds" else "left")
    for stage, step in steps.items():
        if step:
            facts = format_facts(step.get("facts", {}))
            ended = f"{duration_seconds(step):.1f}" if "ended" in step else ""
            table.add_row(stage, in_language(step["status"]), ended, facts)
    return table


def _funnel_table(steps: dict[str, Any]) -> Any:
    from rich.table import Table

    table = Table(title="Rows that are left", title_justify="left")
    for column in ("after", "rows", "share"):
        table.add_column(column, justify="left" if column == "after" else "right")
    facts = {stage: (record or {}).get("facts") or {} for stage, record in steps.items()}
    total = facts.get("generate", {}).get("rows")
    for name, stage, fact in FUNNEL:
        rows = facts.get(stage, {}).get(fact)
        share = f"{rows / total:.1%}" if total and rows is not None else ""
        table.add_row(in_language(name), "" if rows is None else f"{rows:,}", share)
    return table


def _totals_table(config: RunConfig, record: dict[str, Any]) -> Any:
    from rich.table import Table

    table = Table(title="In all", title_justify="left", show_header=False)
    rows: list[tuple[str, str]] = []
    checked = (record["steps"].get("validate") or {}).get("facts") or {}
    if labelled := checked.get("labelled"):
        rows += [
            ("gold passage first, plain question (test left out)", f"{checked['plain_top1'] / labelled:.1%}"),
            ("gold passage first, teacher's rewrite (test left out)", f"{checked['rewritten_top1'] / labelled:.1%}"),
        ]
    if "mean_score" in checked:
        rows += [
            ("mean top-1 score, plain question (test left out)", f"{checked['plain_score']:.3f}"),
            ("mean top-1 score, teacher's rewrite (test left out)", f"{checked['mean_score']:.3f}"),
        ]
    money = record.get("gateway") or {}
    if money:
        currency = config.gateway.teacher.price.currency
        answered = answered_calls(money)
        paid = answered - answered_calls(record.get("gateway_before") or {})
        rows += [
            (
                "cost" if config.pays else "cost, as if paid",
                f"{money['cost']:.4f} {currency} of {config.gateway.budget:g}",
            ),
            ("paid calls, this time" if config.pays else "calls, this time", f"{paid:,}"),
            ("paid calls, in the journal" if config.pays else "calls, in the journal", f"{answered:,}"),
        ]
        if unanswered := money["attempts"] - answered:
            rows.append(("requests without an answer, in the journal", f"{unanswered:,}"))
        rows += [
            (
                "answers from the journal, this time",
                journal_share(money, record.get("gateway_before") or {}, paid),
            ),
            ("retrievals from the cache", f"{money['retrieval_hit_rate']:.0%}"),
        ]
        if billed := money.get("possibly_billed"):
            rows.append(("possibly billed twice", ", ".join(map(str, billed[:10]))))
    rows.append(("time", f"{record['seconds']:.1f} s"))
    for name, value in rows:
        table.add_row(in_language(name), in_language(value))
    return table
