"""A plan for a terminal: what a run would call, live and by batch side by side."""

from typing import Any

from pipelines.plan import Plan, PlanStep
from pipelines.promotion import Promotion, promotion_lines


def print_plan(plan: Plan, evaluates: bool = True) -> None:
    """Print it; of a run that ends before the evaluation only what would refuse a whole one is said."""
    from qinglan.terminal.console import Console

    console = Console()
    console.print(f"{plan.rows:,} questions, {plan.unfit:,} rows that are none (quarantined, unpaid)")
    console.print(", ".join(f"{name} {rows:,}" for name, rows in plan.splits.items()), highlight=False)
    console.print(_calls_table(plan))
    models = ", ".join(f"{step.step}: {step.what} by {step.model}" for step in plan.steps if step.model)
    console.print(f"{models[:1].upper()}{models[1:]}.", highlight=False)
    console.print(batches_in_words(plan), highlight=False)
    console.print(f"{plan.training} Its time depends on the machine and is not part of the table.", highlight=False)
    console.print("Judgements of ppo and evaluate are the most there can be: equal texts are asked once.")
    console.print(f"A run stops before it passes {plan.budget:g} {plan.currency}.")
    console.print(_original_table(plan))
    for warning in plan.warnings:
        console.print(f"! {warning}", style="yellow", highlight=False)
    if evaluates or plan.promotion.refusals:
        print_promotion(console, plan.promotion)
    if not plan.pays:
        console.print("Stand-ins answer in this profile: nothing is paid; the cost is what it would be.")


def print_promotion(console: Any, promotion: Promotion) -> None:
    style = "" if promotion.possible else "yellow"
    console.print("Can this be promoted?", style="bold")
    for line in promotion_lines(promotion):
        console.print(f"  {line}", style=style, highlight=False)


def batches_in_words(plan: Plan) -> str:
    """Which steps this profile batches, and what that is worth."""
    chosen = [f"{step.step} ({step.what})" for step in plan.steps if step.batched]
    if not chosen:
        saved = plan.live_cost - plan.batch_cost
        return (
            f"This profile asks live. By batch it would cost {saved:.2f} {plan.currency} less, and each step may "
            "take its whole window of 24 h: `batch: {}` of a model. Training is always live."
        )
    return (
        f"By batch in this profile (marked *): {', '.join(chosen)}: {plan.cost:.2f} {plan.currency} in all, live it "
        f"would be {plan.live_cost:.2f}. A batch may take its whole window of 24 h; most take less."
    )


def _calls_table(plan: Plan) -> Any:
    from rich.table import Table

    paid = [step for step in plan.steps if step.model]
    table = Table(title="Before anything is spent", title_justify="left", show_footer=True)
    table.add_column("step", footer="in all")
    table.add_column("what")
    table.add_column("calls", justify="right", footer=f"{sum(s.calls for s in paid):,} paid")
    table.add_column("tokens in", justify="right", footer=f"{sum(s.input_tokens for s in plan.steps):,}")
    table.add_column("tokens out", justify="right", footer=f"{sum(s.output_tokens for s in plan.steps):,}")
    table.add_column(f"live, {plan.currency}", justify="right", footer=f"{plan.live_cost:.2f}")
    table.add_column("about", justify="right", footer=_time(plan.live_seconds))
    table.add_column("batch, 24 h", justify="right", footer=f"{plan.batch_cost:.2f}")
    for step in plan.steps:
        table.add_row(
            step.step, step.what, f"{step.calls:,}", f"{step.input_tokens:,}", f"{step.output_tokens:,}",
            f"{step.cost:.2f}", _time(step.seconds), _by_batch(step),
        )  # fmt: skip
    return table


def _by_batch(step: PlanStep) -> str:
    """Its price; training has none, and a retrieval is no paid call."""
    if step.batch_cost is None:
        return "live only" if step.model else ""
    return f"{'* ' if step.batched else ''}{step.batch_cost:.2f}"


def _original_table(plan: Plan) -> Any:
    from rich.table import Table

    table = Table(title="The original plan's budget, and ours for the same", title_justify="left")
    for column in ("what", "the plan", f"ours, {plan.currency}"):
        table.add_column(column)
    for line in plan.original:
        table.add_row(line.what, line.theirs, line.ours)
    return table


def _time(seconds: float) -> str:
    return f"{seconds / 60:.0f} min" if seconds >= 90 else f"{seconds:.0f} s"
