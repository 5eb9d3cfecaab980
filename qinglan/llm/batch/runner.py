"""Runs one batch at its service: upload, create, wait, read the results row by row.

Each step is in the journal before the next begins, so after a kill the next process resumes from there. A temporary
failure is retried for PATIENCE_SECONDS; after that the batch stays open, and the next process fetches it.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterator
from itertools import islice
from typing import NamedTuple, TypeVar

from qinglan.errors import OutageError
from qinglan.http.outages import Retries
from qinglan.llm.batch.api import (
    ENDED_STATUSES,
    RUNNING_STATUSES,
    BatchProblem,
    BatchService,
    BatchStatus,
    NoBatchApiError,
)
from qinglan.llm.batch.journal import Batch, BatchJournal, BatchRow
from qinglan.llm.call_plan import booked
from qinglan.llm.paid.journal import Journal, end_attempt_statement, fail_call_statement, record_answer_statements
from qinglan.llm.providers.upstream import (
    Completion,
    FatalUpstreamError,
    RateLimitError,
    RejectedRequestError,
    TransientError,
    Upstream,
    UpstreamError,
)

log = logging.getLogger(__name__)

PATIENCE_SECONDS = 1800.0
"""Seconds for which requests are retried if the service is unreachable. Then the command ends; the service still runs
the batch."""

FIRST_PAUSE, LONGEST_PAUSE = 0.5, 30.0
"""Shortest and longest pause between two requests, in seconds."""

LOOKUPS = 5
"""Number of look-ups before a batch, a file or a line counts as missing, because services may show them late."""

DEADLINE_SECONDS = 25 * 3600.0
"""Seconds of waiting after which a batch counts as stuck; services end a batch within 24 hours."""

GROUP = 500
"""Number of row outcomes that are sent to the journal before their commits are awaited."""

TOO_LARGE = "token_limit_exceeded"
RESUME = "What is in a batch is not lost: run `qinglan prepay` again, it goes on from there."

Result = TypeVar("Result")


class UnpaidRow(NamedTuple):
    """A row of a batch that got no answer, and the reason."""

    step: str
    row: str
    reason: str
    detail: str


class BatchEnd(NamedTuple):
    """Result of a batch."""

    batch: Batch
    answered: int
    cost: float
    unpaid: tuple[UnpaidRow, ...]
    problem: str
    """Reason why the batch as a whole failed, and the next step; empty if it did not fail."""

    resend_rows: int
    """Row limit for the next batch if the rows can be sent again at once, because the service refused this batch for
    a faulty line or for too many tokens; otherwise 0."""


class BatchRunner:
    """Runs one batch from its current state to its end."""

    def __init__(
        self, batch: Batch, upstream: Upstream, journal: Journal, show: Callable[[Batch, BatchStatus], None]
    ) -> None:
        self._batch, self._journal, self._show = batch, journal, show
        self._model, self._service = upstream.model, BatchService(upstream)
        self._batches = BatchJournal(journal)
        self._retries = Retries(
            f"Batch service {self._model.base_url}",
            _wait_before_retry,
            seconds=PATIENCE_SECONDS,
            pauses=(FIRST_PAUSE, LONGEST_PAUSE),
        )
        self._file = journal.path.with_name(f"{journal.path.name}.{batch.name}.jsonl")
        self._unpaid: list[UnpaidRow] = []
        self._line_keys: set[str] = set()
        self._written: list[asyncio.Future[int]] = []

    async def run(self) -> BatchEnd:
        try:
            await self._create()
        except (FatalUpstreamError, RejectedRequestError) as error:
            return await self._end_refused(error)
        try:
            status = await self._wait()
            await self._note(status=status.status)
            await self._read(status)
        except UpstreamError as error:
            raise OutageError(f"{error} {RESUME}") from error
        await self._settle_rest(status)
        resend = rows_to_resend(status, self._batch.rows)
        answered, _ = self._batches.totals(self._batch)
        return await self._end("" if resend else batch_problem(status, answered, self._batch.rows), resend)

    async def _create(self) -> None:
        """Upload the file and create the batch, unless that was done earlier. Before a repeated creation, search for
        the batch."""
        if self._batch.batch:
            return
        # A kill or a broken connection between the creation and its note leaves a batch that only the service knows.
        # A second creation would pay twice, so the batch is looked for by name and file first.
        may_exist = bool(self._batch.file)
        if not self._batch.file:
            await self._note(file=await self._retry(self._upload), status="uploaded")

        async def create() -> BatchStatus:
            nonlocal may_exist
            if may_exist and (existing := await self._find()):
                return existing
            may_exist = True
            return await self._service.create(self._batch.file, self._batch.name)

        status = await self._retry(create)
        await self._note(batch=status.id, status=status.status)

    async def _upload(self) -> str:
        try:
            await asyncio.to_thread(self._batches.write_file, self._batch, self._file)
            return await self._service.upload(self._file, self._batch.name)
        finally:
            self._file.unlink(missing_ok=True)

    async def _find(self) -> BatchStatus | None:
        """Search for a batch that may exist although its creation was not confirmed; the service may list it late."""
        for pause in islice(pauses(), LOOKUPS):
            try:
                if existing := await self._service.find(self._batch.name, self._batch.file):
                    return existing
            except (FatalUpstreamError, RejectedRequestError) as error:  # the list is refused, not the batch
                raise OutageError(f"{error} {RESUME}") from error
            await asyncio.sleep(pause)
        return None

    async def _wait(self) -> BatchStatus:
        """Wait until the batch has ended and the service names its result files."""
        left, until = LOOKUPS, time.monotonic() + DEADLINE_SECONDS
        for pause in pauses():
            status = await self._retry(lambda: self._service.ask(self._batch.batch))
            self._show(self._batch, status)
            if status.status in ENDED_STATUSES:
                left -= 1
                if not status.files_pending or not left:
                    return status
            elif status.status not in RUNNING_STATUSES or time.monotonic() > until:
                raise TransientError("odd", f"Batch {status.id} is {status.status!r}, as the service calls it.")
            await asyncio.sleep(pause)
        raise AssertionError("pauses never end")

    async def _read(self, status: BatchStatus) -> None:
        """Read the result files. While they have fewer lines than the service counts, read them again a few times."""
        for pause in islice(pauses(), LOOKUPS):
            await self._retry(lambda: self._read_files(status))
            if len(self._line_keys) >= status.done:
                return
            await asyncio.sleep(pause)

    async def _read_files(self, status: BatchStatus) -> None:
        """Record the outcome of each result line's row. Lines without a row and repeated lines are logged and
        skipped."""
        self._line_keys.clear()
        rows = {row.call: row for row in self._batches.rows(self._batch)}
        try:
            for file in status.files:
                async for line in self._service.lines(file):
                    if line.key not in rows or line.key in self._line_keys:
                        log.warning(f"batch {self._batch.batch}: a line of no row, or its second: {line.key[:80]!r}")
                        continue
                    self._line_keys.add(line.key)
                    if rows[line.key].is_open:
                        await self._settle(rows[line.key], line.outcome)
        finally:
            await self._commit()

    async def _settle_rest(self, status: BatchStatus) -> None:
        problems = {problem.line: problem for problem in status.problems if problem.line is not None}
        for number, row in enumerate(self._batches.rows(self._batch), 1):
            if row.is_open:
                await self._settle(row, outcome_without_line(status.status, problems.get(number)))
        await self._commit()

    async def _settle(self, row: BatchRow, outcome: Completion | UpstreamError) -> None:
        if isinstance(outcome, Completion):
            usage, charged = booked(self._model, outcome.usage, row.reserved, self._batch.factor)
            statements = record_answer_statements(row.attempt, row.call, outcome.raw, usage, charged)
        else:
            charged = row.reserved if outcome.maybe_billed else 0.0
            ended = "lost" if outcome.maybe_billed else "rejected"
            self._unpaid.append(UnpaidRow(row.step, row.row, outcome.reason, str(outcome)))
            statements = (
                end_attempt_statement(row.attempt, ended, f"{outcome} {outcome.raw}".strip(), charged),
                fail_call_statement(row.call, outcome.reason, outcome.raw),
            )
        self._written.append(self._journal.write(*statements))
        # Writes are awaited in groups: one fsync for 500 rows instead of one for each.
        if len(self._written) >= GROUP:
            await self._commit()

    async def _commit(self) -> None:
        for written in self._written:
            await written
        self._written.clear()

    async def _end_refused(self, error: UpstreamError) -> BatchEnd:
        for row in self._batches.rows(self._batch):
            await self._settle(row, TransientError("not run", str(error)))
        await self._commit()
        self._unpaid.clear()  # the reason is the batch's, and would be repeated for each row
        await self._note(status="refused")
        if isinstance(error, NoBatchApiError):
            return await self._end(str(error))
        return await self._end(f"{error} No batch was made; its {self._batch.rows:,} rows are unpaid.")

    async def _end(self, problem: str, resend_rows: int = 0) -> BatchEnd:
        await self._batches.note(self._batch, ended=True)
        self._file.unlink(missing_ok=True)  # a process that was killed while it uploaded has left a file
        answered, cost = self._batches.totals(self._batch)
        return BatchEnd(self._batch, answered, cost, tuple(self._unpaid), problem, resend_rows)

    async def _note(self, **changes: str) -> None:
        self._batch = await self._batches.note(self._batch._replace(**changes))  # type: ignore[arg-type]

    async def _retry(self, work: Callable[[], Awaitable[Result]]) -> Result:
        """Await `work()`, and retry temporary failures; if they last, raise an OutageError. Other errors are raised
        at once."""
        try:
            return await self._retries.run(work)
        except (RateLimitError, TransientError) as error:
            raise OutageError(f"{error} {RESUME}") from error


def _wait_before_retry(error: Exception) -> bool | float:
    """Decide if a failed request is sent again. A number means yes, after that wait in seconds."""
    if isinstance(error, RateLimitError) and error.wait is not None:
        return min(max(error.wait, FIRST_PAUSE), PATIENCE_SECONDS)
    return isinstance(error, RateLimitError | TransientError)


def pauses() -> Iterator[float]:
    """Yield the seconds to wait between requests, without end: short at first, then doubled up to LONGEST_PAUSE."""
    pause = FIRST_PAUSE
    while True:
        yield pause
        pause = min(2 * pause, LONGEST_PAUSE)


def outcome_without_line(status: str, problem: BatchProblem | None) -> UpstreamError:
    if problem:
        return RejectedRequestError("rejected", f"The service refused the line: {problem.code}: {problem.message}")
    if status == "completed":
        return TransientError("missing", "The batch ended without a line for this row.", "", True)
    if status in ("expired", "cancelled"):
        return TransientError(status, f"The batch was {status} before this row's turn.")
    return TransientError("not run", "The service did not run the batch.")


def rows_to_resend(status: BatchStatus, rows: int) -> int:
    """Return the row limit for the next batch if the service ran no row of this batch and a new try may succeed; else
    0."""
    if status.status != "failed" or rows == 1:
        return 0
    if any(problem.code == TOO_LARGE for problem in status.problems):
        return rows // 2
    return rows if any(problem.line for problem in status.problems) else 0


def batch_problem(status: BatchStatus, answered: int, rows: int) -> str:
    """Explain why the batch as a whole failed, with the next step; empty if it did not fail."""
    name = f"Batch {status.id}"
    if status.status in ("expired", "cancelled"):
        return (
            f"{name} is {status.status} at the service: {answered:,} of {rows:,} rows are answered and in the "
            "journal, the others are unpaid. Run `qinglan prepay` again for those, or `qinglan run`, which pays live."
        )
    if status.status == "failed":
        reasons = "; ".join(f"{problem.code}: {problem.message}" for problem in status.problems[:3])
        return f"{name}: the service did not run it: {reasons or 'it does not say why'}. Its rows are unpaid."
    if rows and not answered:
        return f"{name}: none of {rows:,} rows was answered. See the rows' reasons, and mend what they name."
    return ""
