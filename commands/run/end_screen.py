"""Report the end of a run: on a screen of at most 30 lines with verdict, systems, rows, cost, files and the next
command, and with all details in RUN/summary.txt."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import orjson

from commands.run.gains import gain_lines, recipes
from pipelines.execute.rundir import ARTIFACT_FILES, RunDir
from pipelines.execute.small_style import without_small_model
from pipelines.execute.step_display import alarm_lines, duration_seconds, format_facts
from pipelines.lines.line import Line
from pipelines.lines.rewriter import REWRITER, RunConfig
from pipelines.lines.style import STYLE
from qinglan.evaluation.teacher_gain import gain_from_facts
from qinglan.files.files import PRIVATE, atomic_write
from qinglan.llm.lost_rows import (
    CUT,
    ROLES,
    WARN_SHARE,
    Loss,
    cut_rows,
    limit_setting,
    loss_lines,
    lost_share,
    read_losses,
)  # fmt: skip
from qinglan.terminal import in_language, listed

Json = Mapping[str, Any]
SUMMARY_WIDTH = 160
"""Columns of summary.txt: wide enough that no table of it folds a cell."""

SMALL_REASONS = 3
"""Highest number of reasons of the small model's verdict that the screen shows."""

ROW_COUNTS = (
    ("rows in the sheet", "generate", "rows"),
    ("rewritten by the teacher", "generate", "rewritten"),
    ("answered by the RAG", "validate", "validated"),
    ("accepted by the score", "validate", "accepted"),
    ("SFT training rows", "convert", "sft_train"),
)
"""Row counts to print: name, the stage, and the stage's fact with the count."""

LEFT_OUT = (
    ("near duplicates of dev or test", "convert", "near_duplicates", "left_out"),
    ("left out for balance between tenants", "convert", "left_out_for_balance", "left_out"),
    ("without gold or a relevant label: not in PPO", "convert", "nothing_relevant", "left_out"),
    ("chats too long for SFT", "sft", "too_long", "sft_log"),
    ("prompts too long for PPO", "ppo", "too_long", "ppo_log"),
)
"""Rows left out of training: the reason, the stage and fact that count them, and the artifact that lists them."""

LOSING_STAGES = (("generate", "rewritten"), ("validate", "validated"))
"""Stages that lose rows if a model gives no usable answer, each with the fact that counts its answered rows."""


def print_summary(config: RunConfig, run: RunDir, record: Json) -> None:
    """Print the screen that ends a rewriter's run, and write everything to its summary.txt."""
    from components.evaluation.rewriter.report import to_markdown

    evaluation, lines = gated_evaluation(run, record), [*end_lines(config, run, record)]
    with _written_summary(run, record["steps"]) as console:
        details = (*left_out_lines(run, record["steps"]), *report_lines(run), *gain_lines(run, config))
        _print_end(console, (), details)
        _print_end(console, [to_markdown(evaluation)] if evaluation else [], lines)
        _print_files(console, REWRITER, run, "config.yaml, run.json, records/, logs/, journal.sqlite")
    print_screen(run, record, evaluation, lines)


def print_screen(run: RunDir, record: Json, evaluation: dict[str, Any], lines: Iterable[str]) -> None:
    from components.evaluation.rewriter.report import to_short_markdown

    labels = report_lines(run) if record["ran"][-1] == "label" else ()
    _print_end(_console(), [to_short_markdown(evaluation)] if evaluation else [], (*labels, *lines))


def print_style_summary(run: RunDir, record: Json) -> None:
    """Print the screen that ends a style model's run, and write everything to its summary.txt."""
    from components.evaluation.style.report import headline, to_markdown, to_short_markdown
    from components.training.style.distil import to_markdown as distilled_markdown

    short, whole = [], []
    if is_done(record, "evaluate"):
        evaluation = orjson.loads(run.shown("evaluation").read_bytes())
        short, whole = [to_short_markdown(evaluation)], [to_markdown(evaluation)]
    if is_done(record, "evaluate_small"):
        small = orjson.loads(run.shown("small_evaluation").read_bytes())
        reasons = (f"- {reason}" for reason in small["verdict"]["reasons"][:SMALL_REASONS])
        short.append("\n".join(["**The small model, int8:**", f"- {headline(small)}", *reasons]))
    if is_done(record, "distil"):
        whole.append(distilled_markdown(run.shown("distil_table")))
    with _written_summary(run, {stage: record["steps"][stage] for stage in record["ran"]}) as console:
        _print_end(console, whole, ())
        _print_files(console, STYLE, run, "config.yaml, run.json, records/, logs/")
    _print_end(_console(), short, style_end_lines(run, record))


def _console(**settings: Any) -> Any:
    from qinglan.terminal.console import Console

    return Console(**settings)


@contextmanager
def _written_summary(run: RunDir, steps: Json) -> Iterator[Any]:
    """Yield a console that writes the run's summary.txt, whole or not at all; the table of steps comes first."""
    with atomic_write(run.summary, mode=PRIVATE) as partial, partial.open("w", encoding="utf-8") as file:
        console = _console(file=file, width=SUMMARY_WIDTH)
        console.print(_steps_table(steps))
        yield console


def _print_end(console: Any, reports: Iterable[str], lines: Iterable[str]) -> None:
    from qinglan.terminal.console import markdown

    for report in reports:
        console.print(markdown(report))
    for line in lines:
        console.print(line, highlight=False, soft_wrap=True)


def _print_files(console: Any, line: Line, run: RunDir, rest: str) -> None:
    names = (name for name in line.files.values() if (run.files / name).exists())
    _print_end(console, (), ("Files:", *(f"  {run.files / name}" for name in names), f"  {run.root}: {rest}"))


def _steps_table(steps: Json) -> Any:
    from rich.table import Table

    table = Table(title="Steps", title_justify="left")
    for column in ("step", "state", "seconds", "what came of it"):
        table.add_column(column, justify="right" if column == "seconds" else "left")
    for stage, step in steps.items():
        if step:
            ended = f"{duration_seconds(step):.1f}" if "ended" in step else ""
            table.add_row(stage, in_language(step["status"]), ended, format_facts(step.get("facts", {})))
    return table


def is_done(record: Json, stage: str) -> bool:
    return stage in record["ran"] and (record["steps"].get(stage) or {}).get("status") == "done"


def gated_evaluation(run: RunDir, record: Json) -> dict[str, Any]:
    """Return the run's evaluation with the verdict of this run's gate; empty if no evaluation was made.

    The verdict in the evaluation's file used the settings at that time; a gate that runs by --only may use others.
    """
    if (record["steps"].get("evaluate") or {}).get("status") != "done":
        return {}
    evaluation: dict[str, Any] = orjson.loads(run.shown("evaluation").read_bytes())
    if verdict := record["verdict"]:
        promote = verdict["word"] == "promote"
        evaluation["verdict"] = {"promote": promote, "reasons": verdict["reasons"]}
    return evaluation


def left_out_lines(run: RunDir, steps: Json) -> Iterator[str]:
    """Say why training leaves out rows that passed the earlier checks, and name the file that lists them."""
    for why, stage, fact, name in LEFT_OUT:
        if rows := _facts(steps, stage).get(fact):
            yield f"{rows:,} rows {why}: {run.files / ARTIFACT_FILES[name]}"


def report_lines(run: RunDir) -> Iterator[str]:
    """Report how far the judges of a run's labels can be trusted, and the further rows by the teacher."""
    from components.data.augment.report import report_lines as augment_lines
    from components.data.label.report import report_lines as label_lines

    for name, heading, report_of in (
        ("label_report", "Labels by judges, not gold:", label_lines),
        ("augment_report", "Further rows by the teacher:", augment_lines),
    ):
        path = run.shown(name)
        if path.exists() and (lines := [*report_of(orjson.loads(path.read_bytes()))]):
            yield from (heading, *lines)


def end_lines(config: RunConfig, run: RunDir, record: Json) -> Iterator[str]:
    """Report alarms, rows and cost, and name the files to read and the next command."""
    for recipe in recipes(run, config, None):
        if recipe.left_out:
            yield f"! {recipe.name}: no gain on dev ({100 * (recipe.brought or 0):+.1f} points), so it was left out."
    yield from alarm_lines(run, record["ran"])
    yield from lost_row_lines(run, record)
    if line := shared_rewrite_line(run, record):
        yield line
    if rows := rows_line(record["steps"]):
        yield rows
    if not is_done(record, "evaluate"):  # the evaluation's table has the same figures for the test
        yield from first_figures(record["steps"])
    if money := record.get("gateway"):
        yield from cost_lines(config, money, record.get("gateway_before") or {})
    yield f"Time: {record['seconds']:.0f} s"
    yield from file_lines(run, record)
    if line := next_step(config, run, record):
        yield line


def lost_rows(run: RunDir, record: Json) -> Iterator[tuple[str, list[Loss], int]]:
    """Yield each stage of this run that lost rows, with the lost rows by cause and the number of answered rows."""
    for stage, answered in LOSING_STAGES:
        quarantine = run.shown(f"{stage}_quarantine")
        if is_done(record, stage) and quarantine.exists():
            yield stage, read_losses(quarantine, stage), record["steps"][stage]["facts"][answered]


def lost_row_lines(run: RunDir, record: Json) -> Iterator[str]:
    for stage, losses, answered in lost_rows(run, record):
        yield from loss_lines(stage, losses, answered)


def shared_rewrite_line(run: RunDir, record: Json) -> str:
    """Return a warning if the teacher gave the same rewrite for many questions, otherwise nothing."""
    from components.data.generate.shared_rewrites import shared_line

    if not is_done(record, "generate") or not run.shown("rewrites").exists():
        return ""
    facts = record["steps"]["generate"]["facts"]
    return shared_line(facts.get("same_rewrite", 0), facts["rewritten"], run.shown("rewrites"))


def cut_advice(config: RunConfig, run: RunDir, record: Json) -> str:
    """Advise to raise a token limit before the run continues, if many answers were cut; empty if few were."""
    for stage, losses, answered in lost_rows(run, record):
        cut = [loss for loss in losses if loss.reason == CUT]
        if lost_share(cut, answered) > WARN_SHARE:
            limit = config.gateway.models()[ROLES[stage]].max_output_tokens
            return (
                f"raise {limit_setting(stage)}, which is {limit:,}, and run the same command again: the "
                f"{cut_rows(cut):,} cut answers are asked for again under a higher limit. Or go on without them: "
            )
    return ""


def style_end_lines(run: RunDir, record: Json) -> Iterator[str]:
    """Report alarms and the small model, and name the files to read and the next command."""
    yield from alarm_lines(run, record["ran"])
    if record["small_verdict"].get("word") == "hold":
        yield "The small model is held, so it is no release. The large one is."
    if line := without_small_model(record):
        yield line
    yield f"Time: {record['seconds']:.0f} s"
    yield from file_lines(run, record)
    if record["verdict"].get("word") == "promote":
        yield f"Next: `qinglan style predict FILE --model {run.shown('style_model')}`"


def file_lines(run: RunDir, record: Json) -> Iterator[str]:
    if is_done(record, "evaluate"):
        yield f"Report: {run.shown('report')}"
    yield f"Everything else: {run.summary}"


def _facts(steps: Json, stage: str) -> dict[str, Any]:
    return (steps.get(stage) or {}).get("facts") or {}


def rows_line(steps: Json) -> str:
    return listed(
        f"{in_language(name)} {_facts(steps, stage)[fact]:,}"
        for name, stage, fact in ROW_COUNTS
        if fact in _facts(steps, stage)
    )


def first_figures(steps: Json) -> Iterator[str]:
    """Compare the teacher's rewrites with the plain questions, without the rows of the test."""
    facts = _facts(steps, "validate")
    if labelled := facts.get("labelled"):
        plain, rewritten = (facts[name] / labelled for name in ("plain_top1", "rewritten_top1"))
        yield (
            f"Gold passage first, test left out: {plain:.1%} by the plain question, {rewritten:.1%} by the teacher's "
            "rewrite"
        )
    if "mean_score" in facts:
        yield (
            f"Mean top-1 score, test left out: {facts['plain_score']:.3f} by the plain question, "
            f"{facts['mean_score']:.3f} by the teacher's rewrite"
        )
    gain = gain_from_facts(facts)
    if gain and gain.is_worse:
        yield f"! The teacher is worse than no rewrite ({gain.in_words()})."
    elif gain and not gain.helps:
        yield (
            f"! The teacher is not shown to be better than no rewrite ({gain.in_words()}). Read some rows of "
            f"{ARTIFACT_FILES['validated_table']} before you pay for training."
        )


def cost_lines(config: RunConfig, money: Json, before: Json) -> Iterator[str]:
    """Report the cost of a run's calls, at the profile's prices if a stand-in answered, and calls whose cost is
    uncertain."""
    currency, calls = config.gateway.teacher.price.currency, answered_calls(money) - answered_calls(before)
    if config.pays:
        yield (
            f"Cost: {money['cost']:.4f} {currency} of {config.gateway.budget:g}, {calls:,} calls paid this time, "
            f"{journal_share(money, before, calls)} answers from the journal"
        )
    else:
        yield f"Cost: nothing, a stand-in taught; {money['cost']:.2f} {currency} at the profile's prices"
    if billed := money.get("possibly_billed"):
        yield f"! {len(billed):,} requests got no answer, and may have been billed."
    if uncounted := money.get("uncounted"):
        yield (
            f"! {uncounted:,} answers came without a count of tokens that can be right. Each is booked at the "
            "most that it can cost: the cost is an upper bound, and the budget may end the run early."
        )


def answered_calls(report: Json) -> int:
    """Count the requests that a model answered, and that were paid; refused requests do not count."""
    return sum(step["answered"] for step in report.get("by_step", []))


def journal_share(report: Json, before: Json, paid: int) -> str:
    """Return the number of answers that this run took from the journal, and their share of all its answers."""
    hits = report["hits"] - before.get("hits", 0)
    return f"{hits:,} ({hits / (hits + paid):.0%})" if hits + paid else "0"


def next_step(config: RunConfig, run: RunDir, record: Json) -> str:
    """Return the next command after a run of several stages; empty after a run of a single stage."""
    ran, order = record["ran"], REWRITER.until(REWRITER.last)
    if len(ran) < 2:
        return ""
    if record.get("verdict", {}).get("word") == "hold":
        return f"Next: `qinglan headroom {run.root}` says what PPO could still gain; the report says what held it."
    if ran[-1] == order[-1]:
        return f"Next: `qinglan audit {run.root}` shows where the model came from."
    return (
        f"Next: {cut_advice(config, run, record)}the same command with --until {order[order.index(ran[-1]) + 1]}, or "
        "without --until to the end; it goes on from here."
    )
