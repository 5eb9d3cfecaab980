"""Print a plan on a terminal: the calls of a run, and those that `qinglan prepay` can pay for at batch prices."""

from typing import Any

from pipelines.checks.plan import Plan, PlanStep
from pipelines.checks.promotion import Promotion, promotion_lines
from qinglan.terminal import Verbatim, in_language, labelled, listed

UNFIT_SHOWN = 10
"""Rows set aside that a terminal shows."""


def print_plan(plan: Plan) -> None:
    """Print the plan; the promotion part only if the run reaches the evaluation, or would be refused."""
    from qinglan.terminal.console import Console

    console = Console()
    console.print(f"{plan.rows:,} question{'' if plan.rows == 1 else 's'}")
    if plan.unfit:
        console.print(f"Rows that cannot be used, set aside unpaid: {plan.unfit:,}")
    for row in plan.unfit_rows[:UNFIT_SHOWN]:
        where, _, detail = row.partition(": ")
        console.print(f"  {labelled(in_language(where), detail)}", style="yellow", highlight=False)
    if plan.unfit > UNFIT_SHOWN:
        console.print(f"  and {plan.unfit - UNFIT_SHOWN:,} more; `qinglan plan --json` names each.")
    console.print(listed(split_in_words(*split) for split in plan.splits.items()), highlight=False)
    if plan.cross_fitted:
        console.print(plan.cross_fitted, highlight=False)
    console.print(_calls_table(plan))
    for step in plan.steps:
        if step.model:
            console.print(f"{step.step} asks the model {step.model} for {step.what}.", highlight=False)
    if prepayment := prepayment_in_words(plan):
        console.print(prepayment, highlight=False)
    if plan.training:
        console.print(f"{plan.training} The hours of this training are not part of the table.", highlight=False)
    counted = {step.step for step in plan.steps}
    if bounded := [name for name in ("label", "sft", "ppo", "evaluate") if name in counted]:
        calls = f"Calls of {listed(map(Verbatim, bounded))} are the most there can be: equal texts are asked once."
        console.print(calls, highlight=False)
    console.print(f"A run stops before it passes {plan.budget:g} {plan.currency}.")
    if plan.fit:
        console.print("Does the training fit?", style="bold")
        for line in plan.fit:
            console.print(f"  {line}", highlight=False)
    for warning in plan.warnings:
        console.print(f"! {warning}", style="yellow", highlight=False)
    if "evaluate" in plan.stages or plan.promotion.refusals:
        print_promotion(console, plan.promotion)
    else:
        console.print(f"The run ends with {plan.stages[-1]}: nothing is evaluated or promoted.", highlight=False)
    if not plan.pays:
        console.print(
            "A stand-in teaches in this profile, to try the machinery: nothing is paid; the cost is a real one's. "
            "Its model is of no use."
        )
    console.print(_original_table(plan))


def print_promotion(console: Any, promotion: Promotion) -> None:
    style = "" if promotion.possible else "yellow"
    console.print("Can this be promoted?", style="bold")
    for line in promotion_lines(promotion):
        console.print(f"  {line}", style=style, highlight=False)


def prepayment_in_words(plan: Plan) -> str:
    """Tell how much paying ahead saves, and how long it takes; empty if it saves nothing."""
    if plan.prepaid_cost >= plan.cost:
        return ""
    steps = " and ".join(step.step for step in plan.steps if step.prepaid_cost is not None)
    return (
        f"`qinglan prepay` with the same arguments pays for {steps} before the run, through the providers' batch "
        f"APIs: {plan.cost - plan.prepaid_cost:.2f} {plan.currency} less. A batch may take 24 h; most take less."
    )


def _calls_table(plan: Plan) -> Any:
    """All calls, within 80 columns up to a hundred million tokens."""
    from rich.table import Table

    paid = [step for step in plan.steps if step.model]
    table = Table(
        title="Before anything is spent", title_justify="left", show_footer=True, box=None, padding=(0, 1, 0, 0)
    )
    table.add_column("", footer="this run, paid")
    for heading, footer in (
        ("calls", f"{sum(s.calls for s in paid):,}"),
        ("tokens in", f"{sum(s.input_tokens for s in plan.steps):,}"),
        ("tokens out", f"{sum(s.output_tokens for s in plan.steps):,}"),
        (f"{plan.currency} live", f"{plan.cost:.2f}"),
        ("prepaid", f"{plan.prepaid_cost:.2f}"),
        ("about", _time(plan.seconds)),
    ):
        table.add_column(heading, footer=footer, justify="right")
    for step in plan.steps:
        table.add_row(
            f"{step.step} {in_language(step.what)}", f"{step.calls:,}", f"{step.input_tokens:,}",
            f"{step.output_tokens:,}", f"{step.cost:.2f}", _prepaid(step), _time(step.seconds),
        )  # fmt: skip
    return table


def _prepaid(step: PlanStep) -> str:
    """Format a step's batch price: `live` if its calls cannot be prepaid, empty for retrievals, which are free."""
    if step.prepaid_cost is None:
        return in_language("live") if step.model else ""
    return f"{step.prepaid_cost:.2f}"


def _original_table(plan: Plan) -> Any:
    from rich.table import Table

    table = Table(
        title="Not part of this run, for comparison: the original plan's budget for 500 rows and 3,000 judgements, "
        "and their cost now; hours are your rows on the plan's machines",
        title_justify="left",
    )
    for column in ("what", "original plan", f"now, {plan.currency}"):
        table.add_column(column)
    for line in plan.original:
        table.add_row(*map(in_language, (line.what, line.planned, line.cost)))
    return table


def _time(seconds: float) -> str:
    return in_language(f"{seconds / 60:.0f} min" if seconds >= 90 else f"{seconds:.0f} s")


def split_in_words(name: str, rows: int) -> str:
    return f"1 row of {name}" if rows == 1 else f"{rows:,} rows of {name}"
