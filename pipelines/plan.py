"""`qinglan plan`: what a run would call, cost and take, read off the sheet itself before anything is spent."""

from datetime import date
from typing import NamedTuple, get_args

from pydantic import Field

from pipelines.config import RunConfig
from qinglan.config import Config
from qinglan.errors import ConfigError, DataError
from qinglan.llm.config import BatchConfig, BatchStep, PaidModel, Price
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
WINDOW_SECONDS = 24 * 3600.0
"""Within which a batch is answered, or what is left of it comes back unpaid."""

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

    batch_cost: float | None = None
    """The same by batch; None where the step's asks cannot wait, or nothing is paid."""

    batched: bool = False
    """Whether this profile asks by batch."""

    def expected(self) -> tuple[float, float]:
        """Cost and seconds as the profile has it. A batch may take its whole window; most take less."""
        if self.batched and self.batch_cost is not None:
            return self.batch_cost, WINDOW_SECONDS
        return self.cost, self.seconds


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
    """As the profile has it: what goes by batch is counted at a batch's price, and with its whole window."""

    live_cost: float
    live_seconds: float
    batch_cost: float
    """If all that can wait went by batch."""

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
    total = sum(step.expected()[0] for step in steps)
    return Plan(
        rows=rows,
        unfit=unfit,
        steps=steps,
        cost=total,
        seconds=sum(step.expected()[1] for step in steps),
        live_cost=sum(step.cost for step in steps),
        live_seconds=sum(step.seconds for step in steps),
        batch_cost=sum(step.cost if step.batch_cost is None else step.batch_cost for step in steps),
        training=f"PPO takes {learned.steps:,} steps of {config.ppo.collection:,} rollouts: {learned.rollouts:,}.",
        budget=config.gateway.budget,
        currency=config.gateway.teacher.price.currency,
        pays=config.pays,
        warnings=tuple(_warnings(config, total, today or date.today())),
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
    live = cost(model.price, input=tokens.input, output=output)
    factor = (model.batch or BatchConfig()).price_factor
    return PlanStep(
        step=step, what=f"{what}s", model=model.model, calls=tokens.calls, input_tokens=tokens.input,
        output_tokens=output, cost=live,
        seconds=tokens.calls * model.typical_seconds / config.gateway.limits.concurrency,
        batch_cost=live * factor if step in get_args(BatchStep) else None,
        batched=model.batches(step) and tokens.calls > 0,
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
        found += stale(f"The {role}", getattr(config.gateway, role).price, today) if config.pays else []
    return found


def stale(whose: str, price: Price, today: date) -> list[str]:
    """What to say of a price that nobody has looked at for long, if it is one."""
    age = (today - price.as_of).days
    return [f"{whose}'s price was read {age} days ago ({price.as_of}); read it again."] if age > STALE_DAYS else []


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
