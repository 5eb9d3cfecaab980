"""The screen that ends a run, at most 30 lines: verdict, systems, what got worse, cost, time, report, next command.

Everything else is in the report and in the run's summary.txt (summary.py).
"""

from collections.abc import Iterator, Mapping
from typing import Any

import orjson

from commands.run.gains import recipes
from pipelines.execute.rundir import ARTIFACT_FILES, RunDir
from pipelines.execute.small_style import without_small_model
from pipelines.execute.step_display import alarm_lines
from pipelines.lines.rewriter import REWRITER, RunConfig
from qinglan.evaluation.teacher_gain import gain_from_facts
from qinglan.llm.lost_rows import (
    CUT,
    ROLES,
    WARN_SHARE,
    cut_rows,
    limit_setting,
    loss_lines,
    lost_share,
    read_losses,
)  # fmt: skip
from qinglan.terminal import in_language, listed

Json = Mapping[str, Any]
SMALL_REASONS = 3
"""Most reasons of the small model's verdict that the screen shows."""

ROW_COUNTS = (
    ("rows in the sheet", "generate", "rows"),
    ("rewritten by the teacher", "generate", "rewritten"),
    ("accepted by the score", "validate", "accepted"),
    ("SFT training rows", "convert", "sft_train"),
)
"""The counts of rows on the screen: name, stage and fact."""

LOSING_STAGES = (("generate", "rewritten"), ("validate", "validated"))
"""The stages that lose rows if a model gives no usable answer, and their count of answered rows."""


def print_screen(config: RunConfig, run: RunDir, record: Json) -> None:
    """Print the end of a rewriter's run."""
    from components.evaluation.rewriter.report import to_short_markdown
    from qinglan.terminal.console import Console, markdown

    console = Console()
    if evaluation := gated_evaluation(run, record):
        console.print(markdown(to_short_markdown(evaluation)))
    for line in end_lines(config, run, record):
        console.print(line, highlight=False, soft_wrap=True)


def print_style_screen(run: RunDir, record: Json) -> None:
    """Print the end of a style model's run."""
    from components.evaluation.style.report import headline, to_short_markdown
    from qinglan.terminal.console import Console, markdown

    console = Console()
    if is_done(record, "evaluate"):
        console.print(markdown(to_short_markdown(orjson.loads(run.shown("evaluation").read_bytes()))))
    if is_done(record, "evaluate_small"):
        small = orjson.loads(run.shown("small_evaluation").read_bytes())
        reasons = (f"- {reason}" for reason in small["verdict"]["reasons"][:SMALL_REASONS])
        console.print(markdown("\n".join(["**The small model, int8:**", f"- {headline(small)}", *reasons])))
    for line in style_end_lines(run, record):
        console.print(line, highlight=False, soft_wrap=True)


def is_done(record: Json, stage: str) -> bool:
    """Tell if the stage was part of this run, and ended well."""
    return stage in record["ran"] and (record["steps"].get(stage) or {}).get("status") == "done"


def gated_evaluation(run: RunDir, record: Json) -> dict[str, Any]:
    """The evaluation of a run that reached it, with the verdict of this run's gate; empty for other runs.

    The file has the verdict by the settings at the time of the evaluation; a gate that runs by --only may have other
    settings.
    """
    if (record["steps"].get("evaluate") or {}).get("status") != "done":
        return {}
    evaluation: dict[str, Any] = orjson.loads(run.shown("evaluation").read_bytes())
    if verdict := record["verdict"]:
        promote = verdict["word"] == "promote"
        evaluation["verdict"] = {"promote": promote, "reasons": verdict["reasons"]}
    return evaluation


def end_lines(config: RunConfig, run: RunDir, record: Json) -> Iterator[str]:
    """Lines on alarms, rows and cost, the files to read, and the next command."""
    from components.data.label.report import report_lines

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
    if record["ran"][-1] == "label" and run.shown("label_report").exists():
        yield from report_lines(orjson.loads(run.shown("label_report").read_bytes()))
    if money := record.get("gateway"):
        yield cost_line(config, money, record.get("gateway_before") or {})
        if uncounted := money.get("uncounted"):
            yield (
                f"! {uncounted:,} answers came without a count of tokens that can be right. Each is booked at the "
                "most that it can cost: the cost is an upper bound, and the budget may end the run early."
            )
    yield f"Time: {record['seconds']:.0f} s"
    yield from files_lines(run, record)
    if line := next_step(config, run, record):
        yield line


def lost_row_lines(run: RunDir, record: Json) -> Iterator[str]:
    """The rows that the paid models gave no usable answer to, by cause, with the setting that helps."""
    for stage, answered in LOSING_STAGES:
        quarantine = run.shown(f"{stage}_quarantine")
        if is_done(record, stage) and quarantine.exists():
            yield from loss_lines(stage, read_losses(quarantine, stage), record["steps"][stage]["facts"][answered])


def shared_rewrite_line(run: RunDir, record: Json) -> str:
    """The warning if the teacher gave the same rewrite for many questions; empty if it did not."""
    from components.data.generate.shared_rewrites import shared_line

    if not is_done(record, "generate") or not run.shown("rewrites").exists():
        return ""
    facts = record["steps"]["generate"]["facts"]
    return shared_line(facts.get("same_rewrite", 0), facts["rewritten"], run.shown("rewrites"))


def cut_advice(config: RunConfig, run: RunDir, record: Json) -> str:
    """Advice to raise a token limit before the run is continued, if many answers were cut; empty if few were."""
    for stage, answered in LOSING_STAGES:
        quarantine = run.shown(f"{stage}_quarantine")
        if is_done(record, stage) and quarantine.exists():
            cut = [loss for loss in read_losses(quarantine, stage) if loss.reason == CUT]
            if lost_share(cut, record["steps"][stage]["facts"][answered]) > WARN_SHARE:
                limit = config.gateway.models()[ROLES[stage]].max_output_tokens
                return (
                    f"raise {limit_setting(stage)}, which is {limit:,}, and run the same command again: the "
                    f"{cut_rows(cut):,} cut answers are asked for again under a higher limit. Or go on without them: "
                )
    return ""


def style_end_lines(run: RunDir, record: Json) -> Iterator[str]:
    """Lines on alarms and on the small model, the files to read, and the next command."""
    yield from alarm_lines(run, record["ran"])
    if record["small_verdict"].get("word") == "hold":
        yield "The small model is held, so it is no release. The large one is."
    if line := without_small_model(record):
        yield line
    yield f"Time: {record['seconds']:.0f} s"
    yield from files_lines(run, record)
    if record["verdict"].get("word") == "promote":
        yield f"Next: `qinglan style predict FILE --model {run.shown('style_model')}`"


def files_lines(run: RunDir, record: Json) -> Iterator[str]:
    """The paths of the report, if this run wrote one, and of the summary."""
    if is_done(record, "evaluate"):
        yield f"Report: {run.shown('report')}"
    yield f"Everything else: {run.summary}"


def rows_line(steps: Json) -> str:
    """A line with the number of the sheet's rows that are left after each stage."""
    facts = {stage: (step or {}).get("facts") or {} for stage, step in steps.items()}
    known = [
        f"{in_language(name)} {facts[stage][fact]:,}"
        for name, stage, fact in ROW_COUNTS
        if fact in facts.get(stage, {})
    ]
    return listed(known)


def first_figures(steps: Json) -> Iterator[str]:
    """Lines that compare the teacher's rewrites with the plain questions, without the rows of the test."""
    facts = (steps.get("validate") or {}).get("facts") or {}
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


def cost_line(config: RunConfig, money: Json, before: Json) -> str:
    """Describe the cost of a run's calls; for a stand-in, the cost at the profile's prices."""
    currency, calls = config.gateway.teacher.price.currency, answered_calls(money) - answered_calls(before)
    if not config.pays:
        return f"Cost: nothing, a stand-in taught; {money['cost']:.2f} {currency} at the profile's prices"
    return (
        f"Cost: {money['cost']:.4f} {currency} of {config.gateway.budget:g}, {calls:,} calls paid this time, "
        f"{journal_share(money, before, calls)} answers from the journal"
    )


def answered_calls(report: Json) -> int:
    """Number of requests that a model answered, and that were paid; refused requests do not count."""
    return sum(step["answered"] for step in report.get("by_step", []))


def journal_share(report: Json, before: Json, paid: int) -> str:
    """Number of answers that this run took from the journal, and their share of all answers that it got."""
    hits = report["hits"] - before.get("hits", 0)
    return f"{hits:,} ({hits / (hits + paid):.0%})" if hits + paid else "0"


def next_step(config: RunConfig, run: RunDir, record: Json) -> str:
    """The next command after a run of several stages; empty after a run of a single stage."""
    ran, order = record["ran"], REWRITER.until(REWRITER.last)
    if len(ran) < 2:
        return ""
    if record.get("verdict", {}).get("word") == "hold":
        return f"Next: `qinglan headroom {run.root}` says what PPO could still gain; the report says what held it."
    if ran[-1] == order[-1]:
        return f"Next: `qinglan audit {run.root}` shows where the model came from."
    advice = cut_advice(config, run, record)
    return (
        f"Next: {advice}the same command with --until {order[order.index(ran[-1]) + 1]}, or without --until to the "
        "end; it goes on from here."
    )
