"""The calls and the cost of a comparison, before anything is spent."""

from collections.abc import Sequence
from datetime import date
from typing import Any, NamedTuple

from commands.compare_teachers.config import TeachersConfig
from pipelines.checks.plan import ANSWER_TOKENS, TokenCount, stale_price_warning
from pipelines.lines.rewriter import RunConfig
from qinglan.llm.config import PaidModel
from qinglan.llm.providers.prices import cost
from qinglan.prompts import judge_messages, need_messages, teacher_messages
from qinglan.rows.rows import Question


class PlanLine(NamedTuple):
    """One kind of paid call."""

    who: str
    what: str
    model: str
    calls: int
    cost: float
    most: float
    """Cost if every answer uses all of its `max_output_tokens`, as a reasoning model may."""

    seconds: float


def plan_lines(config: RunConfig, teachers: TeachersConfig, rows: Sequence[Question]) -> list[PlanLine]:
    """List the calls of a comparison, at most; repeated texts and answers in the journals cost nothing."""
    rewrites, needs, judgements = TokenCount(), TokenCount(), TokenCount()
    for row in rows:
        rewrites = rewrites.plus(teacher_messages(row, config.generate.system_prompt))
        judgements = judgements.plus(judge_messages(row, row.question, config.evaluate.judge_prompt))
        needs = needs if row.need else needs.plus(need_messages(row, config.validate_.need_prompt))
    models = config.gateway.models()
    examined = min(len(rows), config.evaluate.examined_rows) * (len(teachers.teachers) + 1)
    at_once = config.gateway.limits.concurrency
    return [
        *(_line(teacher.name, "rewrites", teacher.model, rewrites, at_once) for teacher in teachers.teachers),
        _line("judge", "needs", models["judge"], needs, at_once),
        _line("examiner", "judgements", models["examiner"], judgements.of(examined), at_once),
    ]


def _line(who: str, what: str, model: PaidModel, tokens: TokenCount, at_once: int) -> PlanLine:
    output = tokens.calls * ANSWER_TOKENS[what]
    most = tokens.calls * model.max_output_tokens
    return PlanLine(
        who, what, model.model, tokens.calls, cost(model.price, tokens.input, output),
        cost(model.price, tokens.input, max(output, most)), tokens.calls * model.typical_seconds / at_once,
    )  # fmt: skip


def warnings(config: RunConfig, teachers: TeachersConfig, lines: Sequence[PlanLine], today: date) -> list[str]:
    remarks = []
    if (total := sum(line.most for line in lines)) > config.gateway.budget:
        remarks.append(
            f"At worst it costs {total:.2f}, and gateway.budget of {config.gateway.budget:g} ends it early; it can "
            "be resumed with more."
        )
    for teacher in teachers.teachers:
        remarks += stale_price_warning(teacher.name, teacher.model.price, today) if config.pays else []
    return remarks


def print_plan(config: RunConfig, teachers: TeachersConfig, lines: Sequence[PlanLine], rows: int) -> None:
    from qinglan.terminal.console import Console

    console = Console()
    console.print(_table(lines, config.gateway.teacher.price.currency))
    console.print(f"{rows:,} rows of training. Equal texts are asked once; journals of an earlier run cost nothing.")
    for warning in warnings(config, teachers, lines, date.today()):
        console.print(f"! {warning}", style="yellow", highlight=False)


def _table(lines: Sequence[PlanLine], currency: str) -> Any:
    from rich.table import Table

    table = Table(title="Before anything is spent", title_justify="left", show_footer=True)
    table.add_column("who", footer="in all")
    table.add_column("what")
    table.add_column("model")
    table.add_column("calls", justify="right", footer=f"{sum(line.calls for line in lines):,}")
    table.add_column(f"cost, {currency}", justify="right", footer=f"{sum(line.cost for line in lines):.2f}")
    table.add_column("at most", justify="right", footer=f"{sum(line.most for line in lines):.2f}")
    table.add_column("about", justify="right", footer=f"{sum(line.seconds for line in lines):.0f} s")
    for line in lines:
        table.add_row(
            line.who, line.what, line.model, f"{line.calls:,}", f"{line.cost:.2f}", f"{line.most:.2f}",
            f"{line.seconds:.0f} s",
        )  # fmt: skip
    return table
