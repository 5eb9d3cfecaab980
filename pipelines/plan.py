"""`qinglan plan`: what a run would call, cost and take, read off the sheet itself before anything is spent."""

from datetime import date
from typing import Any, NamedTuple

from pydantic import Field

from pipelines.config import RunConfig
from qinglan.config import Config
from qinglan.errors import ConfigError, DataError
from qinglan.llm.config import PaidModel, Price
from qinglan.llm.prices import cost, estimate_tokens
from qinglan.prompts import Message, judge_messages, need_messages, teacher_messages
from qinglan.questions import read_questions
from qinglan.rows import Quarantined

ANSWER_TOKENS = {"rewrite": 40, "need": 30, "judgement": 90}
"""What an answer usually takes; the cap on one is in the profile."""

SYSTEMS = 5
"""That evaluation compares: no rewrite, history, teacher, SFT, RL."""

RETRIEVAL_SECONDS = 0.05
STALE_DAYS = 90
RL_CALLS = 3_000
"""The plan's 4.1: 1,000 rows, 10 epochs, 30 % of them judged."""


class PlanStep(Config):
    """One kind of call that a run makes."""

    step: str
    what: str
    model: str
    calls: int
    input_tokens: int
    output_tokens: int
    cost: float
    seconds: float
    """At the limits of the gateway; the service's own limits may be lower."""


class TheirBudget(Config):
    """A line of the original plan's budget, with ours for the same work where we can tell."""

    what: str
    theirs: str
    ours: str


class Plan(Config):
    rows: int
    unfit: int
    """Rows that are no questions: they will be quarantined, unpaid."""

    steps: tuple[PlanStep, ...]
    cost: float
    seconds: float
    training: str
    """What the reinforcement learning will do, and so ask for."""

    budget: float
    currency: str
    pays: bool
    warnings: tuple[str, ...] = Field(default=())
    original: tuple[TheirBudget, ...]


class Rewards(NamedTuple):
    """What training and evaluation ask for, at most: a text that comes again costs nothing."""

    rollouts: int
    steps: int
    judgements: int
    retrievals: int
    test_rows: int
    examined: int


class Tokens(NamedTuple):
    calls: int = 0
    input: int = 0

    def of(self, calls: int) -> "Tokens":
        """So many calls like these."""
        return Tokens(calls, round(self.input / self.calls * calls) if self.calls else 0)

    def plus(self, messages: list[Message]) -> "Tokens":
        return Tokens(self.calls + 1, self.input + sum(estimate_tokens(m["content"]) for m in messages))


def make_plan(config: RunConfig, today: date | None = None) -> Plan:
    """Count what the sheet will take; nothing is called."""
    if config.questions is None or not config.questions.is_file():
        missing = f"{config.questions}: no such file" if config.questions else "is missing"
        raise ConfigError(f"--questions {missing}. A plan counts its rows.")
    rewrites, needs, judgements, rows, unfit = Tokens(), Tokens(), Tokens(), 0, 0
    for row in read_questions(config.questions, config.generate.columns, config.tenant_id):
        if isinstance(row, Quarantined):
            unfit += 1
            continue
        rows += 1
        rewrites = rewrites.plus(teacher_messages(row, config.generate.system_prompt))
        judgements = judgements.plus(judge_messages(row, row.question))
        if not row.need:
            needs = needs.plus(need_messages(row))
    if not rows:
        raise DataError(
            f"{config.questions}: none of {unfit:,} rows is a question. Is the column of questions named under "
            "generate.columns in the profile?"
        )
    learned = rewards(config, rows)
    examiner = config.gateway.models()["examiner"]
    steps = (
        _paid_step(config, "generate", "rewrite", rewrites, config.gateway.teacher),
        _paid_step(config, "validate", "need", needs, config.gateway.judge),
        _retrievals(config, "validate", 2 * rows),
        _paid_step(config, "ppo", "judgement", judgements.of(learned.judgements), config.gateway.judge),
        _retrievals(config, "ppo", learned.retrievals),
        _paid_step(config, "evaluate", "judgement", judgements.of(SYSTEMS * learned.examined), examiner),
        _retrievals(config, "evaluate", SYSTEMS * learned.test_rows),
    )
    return Plan(
        rows=rows,
        unfit=unfit,
        steps=steps,
        cost=sum(step.cost for step in steps),
        seconds=sum(step.seconds for step in steps),
        training=f"PPO takes {learned.steps:,} steps of {config.ppo.collection:,} rollouts: {learned.rollouts:,}.",
        budget=config.gateway.budget,
        currency=config.gateway.teacher.price.currency,
        pays=config.pays,
        warnings=tuple(_warnings(config, sum(step.cost for step in steps), today or date.today())),
        original=original_budget(steps[0], rows, judgements, config.gateway.judge),
    )


def rewards(config: RunConfig, rows: int) -> Rewards:
    """By the shares that rows without a split of their own are divided in."""
    learning, tested = (
        round(rows * config.convert.train),
        round(rows * (1 - config.convert.train - config.convert.dev)),
    )
    steps = config.ppo.steps or config.ppo.epochs * (learning // config.ppo.prompts)
    rollouts = steps * config.ppo.collection
    share = config.ppo.reward.judge_share
    return Rewards(
        rollouts=rollouts,
        steps=steps,
        judgements=round(share * (rollouts + learning)),
        retrievals=rollouts + 2 * learning,
        test_rows=tested,
        examined=min(config.evaluate.examined_rows, tested),
    )


def _paid_step(config: RunConfig, step: str, what: str, tokens: Tokens, model: PaidModel) -> PlanStep:
    output = tokens.calls * ANSWER_TOKENS[what]
    return PlanStep(
        step=step, what=f"{what}s", model=model.model, calls=tokens.calls, input_tokens=tokens.input,
        output_tokens=output, cost=cost(model.price, input=tokens.input, output=output),
        seconds=tokens.calls * model.typical_seconds / config.gateway.limits.concurrency,
    )  # fmt: skip


def _retrievals(config: RunConfig, step: str, calls: int) -> PlanStep:
    at_once = config.gateway.rag.concurrency
    return PlanStep(
        step=step, what="retrievals", model="", calls=calls, input_tokens=0, output_tokens=0, cost=0.0,
        seconds=calls * RETRIEVAL_SECONDS / at_once,
    )  # fmt: skip


def _warnings(config: RunConfig, total: float, today: date) -> list[str]:
    found = []
    if total > config.gateway.budget:
        found.append(f"The budget of {config.gateway.budget:g} ends this run early; it can be resumed with more.")
    for role in ("teacher", "judge"):
        price: Price = getattr(config.gateway, role).price
        if config.pays and (age := (today - price.as_of).days) > STALE_DAYS:
            found.append(f"The {role}'s price was read {age} days ago ({price.as_of}); read it again.")
    return found


def original_budget(rewriting: PlanStep, rows: int, judgements: Tokens, judge: PaidModel) -> tuple[TheirBudget, ...]:
    """The original plan's 4.1 and 2.3, beside what the same number of calls costs at this profile's prices."""
    data = rewriting.cost / rows * 500 if rows else 0.0
    tokens_each = judgements.input / judgements.calls if judgements.calls else 0.0
    reward = cost(judge.price, input=round(tokens_each * RL_CALLS), output=RL_CALLS * ANSWER_TOKENS["judgement"])
    return (
        TheirBudget(what="SFT data, 500 rows", theirs="$5", ours=f"{data:.2f}"),
        TheirBudget(what="RL judging, 3,000 calls", theirs="$30", ours=f"{reward:.2f}"),
        TheirBudget(what="API calls in all", theirs="$35-50", ours=f"{data + reward:.2f}"),
        TheirBudget(what="SFT, LoRA", theirs="4 A100-80GB, 2-3 days", ours="not measured yet"),
        TheirBudget(what="SFT, all weights", theirs="8 A100-80GB, 4-5 days", ours="not measured yet"),
        TheirBudget(what="RL", theirs="3-5 days", ours="not measured yet"),
    )


def print_plan(plan: Plan) -> None:
    from rich.console import Console

    console = Console()
    console.print(f"{plan.rows:,} questions, {plan.unfit:,} rows that are none (quarantined, unpaid)")
    console.print(_calls_table(plan))
    models = ", ".join(f"{step.step}: {step.what} by {step.model}" for step in plan.steps if step.model)
    console.print(f"{models[:1].upper()}{models[1:]}.", highlight=False)
    console.print(f"{plan.training} Its time depends on the machine and is not part of the table.", highlight=False)
    console.print("Judgements of ppo and evaluate are the most there can be: equal texts are asked once.")
    console.print(f"A run stops before it passes {plan.budget:g} {plan.currency}.")
    console.print(_original_table(plan))
    for warning in plan.warnings:
        console.print(f"! {warning}", style="yellow", highlight=False)
    if not plan.pays:
        console.print("Stand-ins answer in this profile: nothing is paid; the cost is what it would be.")


def _calls_table(plan: Plan) -> Any:
    from rich.table import Table

    paid = [step for step in plan.steps if step.model]
    table = Table(title="Before anything is spent", title_justify="left", show_footer=True)
    table.add_column("step", footer="in all")
    table.add_column("what")
    table.add_column("calls", justify="right", footer=f"{sum(s.calls for s in paid):,} paid")
    table.add_column("tokens in", justify="right", footer=f"{sum(s.input_tokens for s in plan.steps):,}")
    table.add_column("tokens out", justify="right", footer=f"{sum(s.output_tokens for s in plan.steps):,}")
    table.add_column(f"cost, {plan.currency}", justify="right", footer=f"{plan.cost:.2f}")
    table.add_column("about", justify="right", footer=_time(plan.seconds))
    for step in plan.steps:
        table.add_row(
            step.step, step.what, f"{step.calls:,}", f"{step.input_tokens:,}", f"{step.output_tokens:,}",
            f"{step.cost:.2f}", _time(step.seconds),
        )  # fmt: skip
    return table


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
