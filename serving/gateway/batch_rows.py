"""The rows of one batch that has ended: each gets its outcome from its own line, or from the batch's end."""

import asyncio
import logging
from collections.abc import Callable
from typing import Literal, NamedTuple

from qinglan.errors import QinglanError, RowError
from qinglan.llm.batch_api import BatchProblem, BatchResultLine, BatchService, BatchStatus
from qinglan.llm.batch_journal import (
    Batch,
    BatchJournal,
    BatchRow,
    end_row_statement,
    fail_row_statements,
    requeue_row_statements,
)
from qinglan.llm.batch_queue import BatchQueue
from qinglan.llm.budget import Budget
from qinglan.llm.config import Limits, PaidModel
from qinglan.llm.group_commit import SqlStatement
from qinglan.llm.journal import Journal, record_answer_statements
from qinglan.llm.prices import Usage, cost
from qinglan.llm.upstream import Completion, FatalUpstreamError, RejectedRequestError, TransientError, UpstreamError
from serving.gateway.metrics import Metrics

log = logging.getLogger("serving.gateway.batches")

GROUP = 500
"""Rows whose outcomes are written before the first is waited for."""

TOO_LARGE = "token_limit_exceeded"
LOST_BATCH = "forgotten"
"""Our word for a batch that its service no longer knows, when nobody waits for it to come back."""

LEFT_TO_LIVE: Literal["left"] = "left"
"""The row's step is live again: whoever waits for its call all the same asks for it anew."""

WaiterResult = bytes | QinglanError | Literal["left"]


class BatchContext(NamedTuple):
    """What the batches of all roles stand on."""

    book: BatchJournal
    queue: BatchQueue
    journal: Journal
    budget: Budget
    limits: Limits
    metrics: Metrics
    landed: Callable[[str, WaiterResult], None]
    """Tells whoever waits for that call."""

    stopped: Callable[[str, QinglanError], None]
    """Tells all who wait for that role."""

    waits: Callable[[str], bool]
    """Whether anybody does."""


class PendingCommit(NamedTuple):
    """An outcome on its way to the disk."""

    done: "asyncio.Future[int]"
    row: BatchRow
    cost: float
    outcome: WaiterResult | None
    """What is told to who waits; nothing for a row that is asked again."""


class RowSettler:
    """Settles a batch's rows, a group at a time; nobody hears of an outcome before it is on disk."""

    def __init__(self, batch: Batch, model: PaidModel, shared: BatchContext) -> None:
        self._batch, self._model, self._shared = batch, model, shared
        self._written: list[PendingCommit] = []
        self._seen: set[int] = set()
        self.closed = ""
        """Why no row would be answered, where a line said so."""

    async def read(self, service: BatchService, told: BatchStatus) -> int:
        """Every line of the batch's files; how many rows they are about.

        Read again after a break, it goes on: what has its outcome keeps it.
        """
        self._seen.clear()
        try:
            for file in told.files:
                async for line in service.lines(file):
                    await self._take(line)
        finally:
            await self._settle_written()
        return len(self._seen)

    async def settle_rest(self, told: BatchStatus) -> None:
        """Rows that no line answered: what the batch's end means for them."""
        book, batch = self._shared.book, self._batch
        problems = {problem.line: problem for problem in told.problems if problem.line is not None}
        first = book.first(batch) if problems else 0
        while rest := book.unsettled(batch, GROUP):
            for row in rest:
                outcome, counts = outcome_without_line(told.status, problems.get(row.attempt - first + 1))
                await self._settle(row, outcome, counts)
            await self._settle_written()

    async def take_back(self, why: str) -> None:
        """The service made nothing of the batch: every row waits again."""
        while rest := self._shared.book.unsettled(self._batch, GROUP):
            for row in rest:
                await self._settle(row, TransientError("refused", why), False)
            await self._settle_written()

    async def _take(self, line: BatchResultLine) -> None:
        """A line counts for the row that it names, once; any other is said and left."""
        found = self._shared.book.row(self._batch, line.key)
        if found is None:
            log.warning("batch %s: a line for no row of it: %r", self._batch.name[:8], line.key[:80])
            return
        row, settled = found
        if row.attempt in self._seen:
            log.warning("batch %s: a second line for row %r", self._batch.name[:8], line.key[:80])
            return
        self._seen.add(row.attempt)
        if not settled:
            await self._settle(row, line.outcome, True)

    async def _settle(self, row: BatchRow, outcome: Completion | UpstreamError, counts: bool) -> None:
        if isinstance(outcome, Completion):
            usage = outcome.usage
            charged = self._cost(usage) if usage else row.reserved
            self._write(row, charged, outcome.raw, record_answer_statements(
                row.attempt, row.call, outcome.raw, usage or Usage(), charged
            ), "answered")  # fmt: skip
        else:
            self._settle_unanswered(row, outcome, counts)
        if len(self._written) >= GROUP:
            await self._settle_written()

    def _settle_unanswered(self, row: BatchRow, failure: UpstreamError, counts: bool) -> None:
        """By the rules of a live call: what may pass is asked again, a few times; what cannot be fails."""
        charged = row.reserved if failure.maybe_billed else 0.0
        said = f"{failure} {failure.raw}".strip()
        if isinstance(failure, FatalUpstreamError):
            self.closed, counts = str(failure), False
        if isinstance(failure, RejectedRequestError) or (counts and row.tries >= self._shared.limits.attempts):
            error = RowError(failure.reason, str(failure), failure.raw)
            statements = fail_row_statements(row, failure.reason, said, failure.raw, charged)
            self._write(row, charged, error, statements, "failed")
        elif self._model.batches(row.step):
            self._write(row, charged, None, requeue_row_statements(row, said, charged, counts), "again")
        else:
            self._write(row, charged, LEFT_TO_LIVE, (end_row_statement(row, said, charged),), "left")

    def _write(
        self,
        row: BatchRow,
        charged: float,
        outcome: WaiterResult | None,
        statements: tuple[SqlStatement, ...],
        how: str,
    ) -> None:
        self._written.append(PendingCommit(self._shared.journal.write(*statements), row, charged, outcome))
        self._shared.metrics.batch_row(self._batch.role, how)

    async def _settle_written(self) -> None:
        """Everything written stands on disk; then the money makes way and those who wait are told."""
        for written in self._written:
            await written.done
            self._shared.budget.settle(written.row.reserved, written.cost)
            if written.outcome is not None:
                # Given up here, and yet answered live meanwhile: who waits gets what was paid for.
                kept = self._shared.journal.answer(written.row.call)
                self._shared.landed(written.row.call, written.outcome if kept is None else kept)
        self._written.clear()

    def _cost(self, usage: Usage) -> float:
        return self._batch.factor * cost(self._model.price, usage.input, usage.output, usage.cached)


def outcome_without_line(status: str, problem: BatchProblem | None) -> tuple[UpstreamError, bool]:
    """What a row without a line has come to, and whether that was one of its tries."""
    if problem:
        return RejectedRequestError(
            "rejected", f"The service refused the line: {problem.code}: {problem.message}"
        ), True
    if status == "completed":
        return TransientError("missing", "The batch ended without a line for this row.", "", True), True
    if status == LOST_BATCH:
        return TransientError("forgotten", "The service no longer knows the batch, or its file.", "", True), False
    if status == "expired":
        return TransientError("expired", "The batch expired before this row's turn."), True
    if status == "cancelled":
        return TransientError("cancelled", "The batch was cancelled before this row's turn."), False
    return TransientError("not run", "The service did not run the batch."), False


def is_too_large(told: BatchStatus) -> bool:
    return told.status == "failed" and any(problem.code == TOO_LARGE for problem in told.problems)


def batch_failure(batch: Batch, told: BatchStatus, answered: int, failed: int, outage_after: int, alone: bool) -> str:
    """Why asking on would be no good, if so: nobody's row was at fault. `alone`: no other batch is under way."""
    name = f"batch {told.id}"
    said = "; ".join(f"{problem.code}: {problem.message}" for problem in told.problems[:3])
    if told.status == "cancelled":
        return f"{name} was cancelled at the service. What it had answered is kept; run again to ask for the rest."
    if is_too_large(told) and (batch.rows > 1 or not alone):
        return ""
    if told.status == "failed" and not any(problem.line for problem in told.problems):
        return f"{name}: the service did not run it: {said or 'it does not say why'}. Its rows wait, unpaid."
    if failed >= outage_after and not answered:
        return f"{name}: all of {failed:,} rows failed: {said or 'see the journal'}. Mend it, then run again."
    return ""
