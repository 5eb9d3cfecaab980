"""Print a plan on a terminal: the calls of a run, and which of them `qinglan prepay` can pay for at batch prices."""

from typing import Any

from pipelines.checks.plan import Plan
from pipelines.checks.promotion import promotion_lines
from qinglan.terminal import Verbatim, in_language, labelled, listed

UNFIT_SHOWN = 10
"""Highest number of unusable rows that the terminal shows."""


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
    splits = (f"1 row of {name}" if rows == 1 else f"{rows:,} rows of {name}" for name, rows in plan.splits.items())
    console.print(listed(splits), highlight=False)
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
        console.print("Can this be promoted?", style="bold")
        for line in promotion_lines(plan.promotion):
            console.print(f"  {line}", style="" if plan.promotion.possible else "yellow", highlight=False)
    else:
        console.print(f"The run ends with {plan.stages[-1]}: nothing is evaluated or promoted.", highlight=False)
    if not plan.pays:
        console.print(
            "A stand-in teaches in this profile, to try the machinery: nothing is paid; the cost is a real one's. "
            "Its model is of no use."
        )


def prepayment_in_words(plan: Plan) -> str:
    """Say how much money `qinglan prepay` saves, and how long it takes; empty if it saves nothing."""
    if plan.prepaid_cost >= plan.cost:
        return ""
    steps = " and ".join(step.step for step in plan.steps if step.prepaid_cost is not None)
    return (
        f"`qinglan prepay` with the same arguments pays for {steps} before the run, through the providers' batch "
        f"APIs: {plan.cost - plan.prepaid_cost:.2f} {plan.currency} less. A batch may take 24 h; most take less."
    )


def _calls_table(plan: Plan) -> Any:
    """Build the table of all calls, which fits into 80 columns up to a hundred million tokens."""
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
        prepaid = "" if step.prepaid_cost is None else f"{step.prepaid_cost:.2f}"
        if step.model and step.prepaid_cost is None:
            prepaid = in_language("live")  # its calls cannot be prepaid
        table.add_row(
            f"{step.step} {in_language(step.what)}", f"{step.calls:,}", f"{step.input_tokens:,}",
            f"{step.output_tokens:,}", f"{step.cost:.2f}", prepaid, _time(step.seconds),
        )  # fmt: skip
    return table


def _time(seconds: float) -> str:
    return in_language(f"{seconds / 60:.0f} min" if seconds >= 90 else f"{seconds:.0f} s")
