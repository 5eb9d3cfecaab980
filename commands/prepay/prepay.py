"""`qinglan prepay`: fill a run's journal with answers from the providers' batch APIs, before `qinglan run`.

These requests are known before the run sends them:
- generate: the teacher's rewrites
- validate: the judge's needs, for rows whose need the sheet does not state
- augment and evaluate, once the run has split its rows: the teacher's further rows, and the judgements of the systems
  that need no trained model

They have the journal keys of the live calls, so the run finds the answers and does not pay again. Requests that no
batch answered are left to the run.
"""

import asyncio
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, ExitStack
from pathlib import Path
from typing import NamedTuple

from commands.run.run import start_teacher
from components.data.augment.cases import Inputs, paid_requests
from components.data.generate.stage import STEP as GENERATE
from components.data.validate.stage import STEP as VALIDATE
from components.evaluation.rewriter.score_systems import fixed_judgements
from pipelines.checks.plan import ANSWER_TOKENS, TokenCount
from pipelines.checks.preflight import check_sheet, input_file_problems, raise_together, with_run_files
from pipelines.checks.promotion import too_few_rows
from pipelines.checks.readiness import missing_keys_and_hosts
from pipelines.execute.execution import StepFailed, run_lock
from pipelines.execute.interrupts import INTERRUPTED
from pipelines.execute.rundir import RunDir
from pipelines.lines.rewriter import REWRITER, RunConfig
from pipelines.lines.sheet import read_sheet
from qinglan.errors import BudgetError, OutageError
from qinglan.files.files import read_jsonl
from qinglan.llm.batch.api import MAX_FILE_BYTES, BatchStatus
from qinglan.llm.batch.journal import REJECTED_REASONS, Batch, BatchCall, BatchJournal, rows_that_fit
from qinglan.llm.batch.runner import BatchEnd, BatchRunner, UnpaidRow
from qinglan.llm.call_plan import PaidRequest, plan_call
from qinglan.llm.config import GatewayConfig, PaidModel, check_currency
from qinglan.llm.paid.journal import Entry, Journal, prompt_key
from qinglan.llm.paid.journal_reader import read_report
from qinglan.llm.providers.prices import cost
from qinglan.llm.providers.upstream import Upstream
from qinglan.prompts import need_messages, teacher_messages
from qinglan.rows.questions import read_questions
from qinglan.rows.rows import Question, ValidatedRewrite
from qinglan.terminal import say

MOST_ROWS = 50_000
"""Highest number of rows in one batch; services refuse more."""

ANSWERS = {"generate": "rewrites", "validate": "needs", "augment": "further rows", "evaluate": "judgements"}
"""Names of the answers that each step pays for."""

SHOWN = 10
"""Highest number of unpaid rows that are named one by one."""


class QuoteLine(NamedTuple):
    """The price of one step's calls of one model."""

    step: str
    role: str
    model: str
    rows: int
    live: float
    prepaid: float
    """`live` and `prepaid` assume answers of the usual length."""

    worst: float
    """The highest possible cost by batch."""


class Quote(NamedTuple):
    """The price of a prepayment, before it is paid."""

    lines: tuple[QuoteLine, ...]
    journaled: int
    """Number of calls that are in the journal or in an open batch already, or that the service rejected before."""

    budget: float
    spent: float
    """The part of the budget that is spent, including what open batches may cost."""

    currency: str

    @property
    def rows(self) -> int:
        return sum(line.rows for line in self.lines)

    @property
    def prepaid(self) -> float:
        return sum(line.prepaid for line in self.lines)


class Prepayment(NamedTuple):
    """The result of a prepayment."""

    answered: int
    cost: float
    currency: str
    unpaid: tuple[UnpaidRow, ...]
    problems: tuple[str, ...]


Approve = Callable[[Quote], bool]
"""Shows the quote and tells whether it may be paid."""


def prepay_run(config: RunConfig, root: Path, approve: Approve, most_rows: int = MOST_ROWS) -> Prepayment | None:
    """Pay ahead for the calls of a run in the folder `root`; None if the quote was not approved."""
    run = RunDir(root)
    config = with_run_files(config, run, "")
    check_currency(config.gateway)
    # The examiner's requests are known only once the run has split its rows.
    roles = ("teacher", "judge", *(["examiner"] if run.shown("locked_test").exists() else []))
    raise_together([*input_file_problems(config), *missing_keys_and_hosts(config, roles)])
    sheet = read_sheet(config)
    check_sheet(config, sheet, (GENERATE, VALIDATE))
    for refusal in too_few_rows(config, sheet, REWRITER.until(REWRITER.last)):
        say(f"! {refusal.reason} `qinglan run` refuses a whole run of this sheet: what is paid here serves one with "
            f"--until convert alone. {refusal.next_step}", to=sys.stderr)  # fmt: skip
    with run_lock(run), ExitStack() as services:
        gateway = start_teacher(config, run, services)(config.gateway)
        try:
            return asyncio.run(prepay(known_requests(config, run), gateway, run.journal, approve, most_rows))
        except KeyboardInterrupt as error:
            message = "Stopped. Run the same command again to go on: what is in a batch is not lost, nor paid twice."
            raise StepFailed(message, exit_code=INTERRUPTED) from error


def give_up(root: Path) -> list[Batch]:
    """Give up a run's open batches for good; returns them."""

    async def end_batches() -> list[Batch]:
        journal = Journal(RunDir(root).journal)
        try:
            pages = BatchJournal(journal)
            batches = pages.open()
            await pages.give_up()
            return batches
        finally:
            journal.close()

    return asyncio.run(end_batches())


def known_requests(config: RunConfig, run: RunDir) -> Iterator[PaidRequest]:
    """Yield the requests of the run's stages that are known now, exactly as the stages send them."""
    assert config.questions is not None
    for row in read_questions(config.questions, config.generate.columns, config.tenant_id):
        if not isinstance(row, Question):
            continue
        yield PaidRequest(Entry(GENERATE, row.id, "teacher"), teacher_messages(row, config.generate.system_prompt))
        if not row.need:
            yield PaidRequest(Entry(VALIDATE, row.id, "judge"), need_messages(row, config.validate_.need_prompt))
    if (locked := run.shown("locked_test")).exists():
        assert config.knowledge_base is not None
        inputs = Inputs(run.shown("chats"), run.shown("prompts"), locked, config.knowledge_base)
        yield from paid_requests(inputs, config.augment)
        yield from fixed_judgements([row for _, row in read_jsonl(locked, ValidatedRewrite)], config.evaluate)


async def prepay(
    requests: Iterator[PaidRequest], gateway: GatewayConfig, journal_path: Path, approve: Approve,
    most_rows: int = MOST_ROWS,
) -> Prepayment | None:  # fmt: skip
    """Collect the answers of batches that an earlier prepayment left open, then pay for all requests that are not in
    the journal. None if the quote was not approved."""
    async with AsyncExitStack() as stack:
        journal = Journal(journal_path)
        stack.callback(journal.close)
        pages = BatchJournal(journal)
        models = {str(role): model for role, model in gateway.models().items()}
        calls, lines, known = plan_calls(requests, models, pages.settled_keys(), pages.answered_prompts())
        currency = gateway.teacher.price.currency
        quote = Quote(lines, known, gateway.budget, journal.spent(), currency)
        if quote.rows:
            check_budget(quote)
            if not approve(quote):
                return None
        rounds = _Rounds(gateway.budget, models, journal, calls, most_rows)
        roles = {batch.role for batch in pages.open()} | calls.keys()
        for role in sorted(roles):
            upstream = Upstream(models[role], role, gateway.limits.timeout_seconds)
            stack.push_async_callback(upstream.aclose)
            rounds.upstreams[role] = upstream
        return await rounds.run(currency)


def plan_calls(
    requests: Iterator[PaidRequest], models: Mapping[str, PaidModel], settled: set[str], answered_prompts: set[str]
) -> tuple[dict[str, list[BatchCall]], tuple[QuoteLine, ...], int]:
    """Return three things: the calls to pay for, by role and each only once; the quote's line for each step and role;
    the number of calls that need no batch."""
    keys, known = set[str](), 0
    calls: dict[str, list[BatchCall]] = defaultdict(list)
    tokens: dict[tuple[str, str], TokenCount] = defaultdict(TokenCount)
    worst: dict[tuple[str, str], float] = defaultdict(float)
    for request in requests:
        step, _, role = request.entry
        planned = plan_call(request, models[role])
        key = planned.call.key
        if key in keys:
            continue
        keys.add(key)
        if key in settled or prompt_key(planned.call.request, planned.call.sample) in answered_prompts:
            known += 1
        else:
            most = planned.worst * models[role].batch_price_factor
            calls[role].append(BatchCall(planned.call, planned.entry, most))
            tokens[step, role] = tokens[step, role].plus(request.messages)
            worst[step, role] += most
    lines = []
    for (step, role), count in tokens.items():
        model = models[role]
        live = cost(model.price, count.input, count.calls * ANSWER_TOKENS[ANSWERS[step]])
        prepaid = live * model.batch_price_factor
        lines.append(QuoteLine(step, role, model.model, count.calls, live, prepaid, worst[step, role]))
    return dict(calls), tuple(lines), known


def check_budget(quote: Quote) -> None:
    """Raise a BudgetError if the rest of the budget does not cover the quote; nothing has been uploaded yet."""
    if quote.spent + quote.prepaid > quote.budget:
        raise BudgetError(
            f"Prepaying {quote.rows:,} calls would cost about {quote.prepaid:.4f} {quote.currency}; "
            f"{quote.spent:.4f} of the budget of {quote.budget:g} is spent. Raise gateway.budget. Nothing was sent."
        )


def quote_in_words(quote: Quote) -> list[str]:
    """Describe the quote to a person, in lines."""
    lines = [
        f"{line.step}: {line.rows:,} {ANSWERS[line.step]} by {line.model}: about {line.prepaid:.4f} "
        f"{quote.currency}, live {line.live:.4f}; at most {line.worst:.4f}"
        for line in quote.lines
    ]
    if quote.journaled:
        lines.append(f"{quote.journaled:,} calls are in the journal or in a batch already, or were rejected before.")
    lines.append(
        f"Together about {quote.prepaid:.4f} {quote.currency}; {max(0.0, quote.budget - quote.spent):.4f} of the "
        f"budget of {quote.budget:g} is left. A batch may take 24 h; most take less."
    )
    return lines


class _Rounds:
    """Sends batches in rounds. A round has one batch for each role, with as many calls as fit; the next round begins
    when all its batches have ended."""

    def __init__(
        self, budget: float, models: Mapping[str, PaidModel], journal: Journal, calls: dict[str, list[BatchCall]],
        most_rows: int,
    ) -> None:  # fmt: skip
        self.upstreams: dict[str, Upstream] = {}
        self._budget, self._models, self._journal, self._calls = budget, models, journal, calls
        self._batches = BatchJournal(journal)
        self._most: dict[str, int] = defaultdict(lambda: most_rows)
        self._shown: dict[int, tuple[str, int]] = {}
        self._unpaid: list[UnpaidRow] = []
        self._problems: list[str] = []
        self._answered, self._cost = 0, 0.0

    async def run(self, currency: str) -> Prepayment:
        batches = self._batches.open()
        while True:
            batches += await self._fill(bool(batches))
            if not batches:
                return Prepayment(self._answered, self._cost, currency, tuple(self._unpaid), tuple(self._problems))
            for end in await self._finish(batches):
                self._take(end)
            # A problem of the service, such as a refused batch, would be the same for the next batch.
            if self._problems:
                self._calls = {}
            batches = []

    async def _fill(self, others_open: bool) -> list[Batch]:
        """Make the round's batches and reserve their cost in the journal; empty if no further call fits the budget.
        Raises BudgetError if calls are left and no batch is open."""
        batches: list[Batch] = []
        for role, calls in self._calls.items():
            room = self._budget - self._journal.spent()
            count = rows_that_fit(calls, room, self._most[role], MAX_FILE_BYTES)
            if count:
                batches.append(await self._batches.make(role, calls[:count], self._models[role].batch_price_factor))
                self._calls[role] = calls[count:]
        if not (batches or others_open) and (left := sum(map(len, self._calls.values()))):
            raise BudgetError(
                f"{self._journal.spent():.4f} of the budget of {self._budget:g} is spent, and the next call of a "
                f"batch could pass it: {left:,} calls are not prepaid. Raise gateway.budget and run again: what was "
                "paid for is in the journal."
            )
        return batches

    async def _finish(self, batches: Sequence[Batch]) -> list[BatchEnd]:
        """Run each batch to its end; an outage is raised only after all batches have ended."""
        runners = (BatchRunner(batch, self.upstreams[batch.role], self._journal, self._show) for batch in batches)
        # gather_or_cancel would cancel the other batches if one fails, and they are paid for: all are awaited.
        ends = await asyncio.gather(*(runner.run() for runner in runners), return_exceptions=True)  # noqa: TID251
        if errors := [end for end in ends if isinstance(end, BaseException)]:
            raise errors[0]
        return [end for end in ends if isinstance(end, BatchEnd)]

    def _take(self, end: BatchEnd) -> None:
        self._answered, self._cost = self._answered + end.answered, self._cost + end.cost
        role = end.batch.role
        if end.resend_rows:
            self._most[role] = end.resend_rows
            self._calls[role] = [*self._batches.unanswered(end.batch), *self._calls.get(role, [])]
        self._unpaid += [row for row in end.unpaid if not end.resend_rows or row.reason in REJECTED_REASONS]
        if end.problem and end.problem not in self._problems:
            self._problems.append(end.problem)

    def _show(self, batch: Batch, status: BatchStatus) -> None:
        if self._shown.get(batch.id) != (now := (status.status, status.done)):
            self._shown[batch.id] = now
            line = f"[prepay] {batch.role}'s {status.id}: {status.status}, {status.done:,} of {batch.rows:,} rows"
            say(line, to=sys.stderr)


def result_in_words(result: Prepayment, journal: Path) -> list[str]:
    """Describe the result to a person, with the first unpaid rows by name. Empty if no batch was made, because
    the problems say why."""
    if result.problems and not (result.answered or result.unpaid):
        return []
    held = read_report(journal)["answered"] if journal.is_file() else 0
    lines = [
        f"✓ {result.answered:,} answers added for {result.cost:.4f} {result.currency}; "
        f"{journal} holds {held:,} in all"
    ]
    if result.unpaid:
        lines.append(f"{len(result.unpaid):,} calls have no answer and are left to `qinglan run`, which pays live:")
        lines += [f"  {row.step}/{row.row}: {row.detail}" for row in result.unpaid[:SHOWN]]
    if (more := len(result.unpaid) - SHOWN) > 0:
        lines.append(f"  and {more:,} more")
    return lines


def raise_problems(result: Prepayment) -> None:
    if result.problems:
        raise OutageError(*result.problems)
