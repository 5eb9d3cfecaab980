"""One role's batches: filled from the queue, sent, followed, read.

fill():   the queue's head, as much as a file holds and the money allows, becomes a batch in the journal
follow(): uploaded -> created -> ended -> every row has its outcome; each step stands on disk before the next
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Sequence
from typing import Any

from qinglan.errors import BudgetError, OutageError, QinglanError
from qinglan.llm.batch_api import ENDED_STATUSES, MAX_FILE_BYTES, RUNNING_STATUSES, BatchService, BatchStatus
from qinglan.llm.batch_journal import Batch
from qinglan.llm.batch_queue import QueueItem, rows_that_fit
from qinglan.llm.budget import fits
from qinglan.llm.config import BatchConfig
from qinglan.llm.upstream import FatalUpstreamError, RejectedRequestError, Upstream, UpstreamError
from serving.gateway.batch_creator import BatchCreator
from serving.gateway.batch_retry import BatchAbandoned, BatchRetry, is_overdue
from serving.gateway.batch_rows import LOST_BATCH, BatchContext, RowSettler, batch_failure, is_too_large

log = logging.getLogger("serving.gateway.batches")


class RoleBatches:
    """One role's way to its service's batches."""

    def __init__(self, role: str, upstream: Upstream, config: BatchConfig, shared: BatchContext) -> None:
        self._role, self._upstream, self._config, self._shared = role, upstream, config, shared
        self._service = BatchService(upstream)
        self._book, self._queue = shared.book, shared.queue
        self._live = upstream.model.batch is None
        self._patience = BatchRetry(
            shared.limits.attempts, config.poll_seconds, self._live, self._hold_up, self._recovered
        )
        self._making = BatchCreator(self._service, shared.book, shared.journal.path, self._patience, self._note)
        self._wanted, self._ended = asyncio.Event(), asyncio.Event()
        self._most = config.requests
        self._squeezed = False
        self._last_wish = 0.0
        self._open: dict[int, tuple[Batch, BatchStatus | None]] = {}
        self._steps: dict[int, set[str]] = {}
        self._reading = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._unseen: set[int] = set()
        self._seen = asyncio.Event()
        self._seen.set()
        self.trouble: QinglanError | None = None
        """What holds this role's batches up; whoever waits is told."""

        self.failure: QinglanError | None = None
        """Why this role's batches do not go on until the gateway starts anew."""

    def start(self, unfinished: Sequence[Batch]) -> None:
        """Go on with the batches from before. What else is wanted, somebody will say."""
        for batch in unfinished:
            log.info("batch %s of %s: going on, it was %s", batch.name[:8], self._role, batch.status)
            self._unseen.add(batch.id)
            self._seen.clear()
            self._follow(batch)
        self._spawn(self._fill())

    def stop(self) -> None:
        """Nothing more is sent, asked or read: the journal knows how far each batch is."""
        for task in self._tasks:
            task.cancel()

    async def aclose(self) -> None:
        self.stop()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def wake(self) -> None:
        """Somebody waits for what is in the queue."""
        if self.failure:
            raise self.failure
        self._last_wish = asyncio.get_running_loop().time()
        self.trouble = None
        self._wanted.set()

    async def looked_at(self) -> None:
        """Until it is known how the batches from before are, or that the service does not say."""
        await self._seen.wait()

    @property
    def idle(self) -> bool:
        """Whether no batch is under way."""
        return not self._open

    def nudge(self) -> None:
        """Somebody still waits: what has come back into the queue may go again."""
        if not self.trouble:
            self._wanted.set()

    def done_of(self, step: str) -> int:
        """Asks of the step's batches that the service says it has answered; about, where steps share a batch."""
        return sum(told.done for number, (_, told) in self._open.items() if told and step in self._steps[number])

    def listed(self) -> list[dict[str, Any]]:
        return [
            {"role": self._role, "name": batch.name, "batch": batch.batch, "status": batch.status,
             "rows": batch.rows, "done": told.done if told else 0}
            for batch, told in self._open.values()
        ]  # fmt: skip

    def _spawn(self, work: Awaitable[None]) -> None:
        async def guarded() -> None:
            try:
                await work
            except Exception as error:
                log.exception("batches of %s", self._role)
                ours = f"batches of {self._role}: an error of ours ({error!r}). See the log, then start it again."
                self.failure = error if isinstance(error, QinglanError) else OutageError(ours)
                self._see(*self._unseen)
                self._stop_for(self.failure)

        task = asyncio.create_task(guarded())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _stop_for(self, error: QinglanError) -> None:
        """Nothing more is sent until somebody asks again."""
        log.warning("batches of %s: %s", self._role, error)
        self.trouble = error
        self._wanted.clear()
        self._shared.stopped(self._role, error)

    def _hold_up(self, batch: Batch, failure: UpstreamError) -> None:
        """Whoever waits is told; the batch is looked at again and again."""
        self._see(batch.id)
        self._stop_for(OutageError(f"{failure} What is in a batch is not lost: run again later, it is polled on."))

    def _recovered(self) -> None:
        self.trouble = self.failure

    def _see(self, *batches: int) -> None:
        self._unseen.difference_update(batches)
        if not self._unseen:
            self._seen.set()

    def _note(self, batch: Batch, told: BatchStatus | None) -> None:
        self._open[batch.id] = batch, told

    async def _fill(self) -> None:
        """Make batches of what is in the queue, for as long as somebody wants it."""
        while True:
            await self._wanted.wait()
            await self._gathered()
            if not self._wanted.is_set():
                continue  # stopped meanwhile
            self._wanted.clear()
            await self._unless_squeezed()
            queue = await self._queue.queued(self._role, self._most)
            if not queue:
                continue
            taken = queue[: rows_that_fit(queue, self._shared.budget.room, self._most, MAX_FILE_BYTES)]
            if not taken:
                await self._when_there_is_room(queue[0].reserved)
                continue
            self._wanted.set()
            await self._make(taken)

    async def _make(self, taken: Sequence[QueueItem]) -> None:
        """A batch of the queue's head, with its money."""
        budget, held = self._shared.budget, sum(one.reserved for one in taken)
        budget.hold(held)  # before it is written: a live call may look at the room meanwhile
        try:
            batch, money = await self._book.make(self._role, taken, self._config.price_factor)
        except BaseException:
            budget.settle(held, 0.0)
            raise
        budget.settle(held - money, 0.0)
        if not batch.rows:  # all of it was sent live meanwhile
            await self._book.end(batch._replace(status="empty"))
            return
        self._shared.metrics.batch(self._role, "made")
        self._shared.metrics.attempt(self._role, batch.rows)
        log.info("batch %s of %s: %s rows", batch.name[:8], self._role, f"{batch.rows:,}")
        self._follow(batch)

    async def _gathered(self) -> None:
        """Until nobody has asked for a while, or a file is full; never while answers are still being read."""
        loop = asyncio.get_running_loop()
        while True:
            left = self._last_wish + self._config.gather_seconds - loop.time()
            ready = left <= 0 or self._queue.waiting(self._role, self._most) >= self._most
            if ready and not self._reading:
                return
            await asyncio.sleep(max(0.05, min(left, 1.0)))

    async def _when_there_is_room(self, amount: float) -> None:
        """The money is reserved: most of it comes back when a batch has ended."""
        budget = self._shared.budget
        if self._open:
            self._ended.clear()
            await self._ended.wait()
        elif budget.reserved and fits(budget.cap, budget.spent, 0.0, amount):
            await budget.settled()
        else:
            error = BudgetError(
                f"{budget.spent:.4f} of the budget of {budget.cap:g} is spent; the next call of a batch may cost "
                f"{amount:.4f}. Raise gateway.budget and run again: what was paid for is in the journal."
            )
            self._stop_for(error)
            return
        self._wanted.set()

    def _follow(self, batch: Batch) -> None:
        self._open[batch.id] = batch, None
        self._steps[batch.id] = self._book.steps(batch.id)
        self._shared.metrics.open_batches.labels(self._role).inc()
        self._spawn(self._through(batch))

    async def _through(self, batch: Batch) -> None:
        """From wherever it stands to its end."""
        try:
            batch = await (self._making.only_found(batch) if self._live else self._making.made(batch))
            told = await self._until_ended(batch)
        except BatchAbandoned as why:
            told = self._given_up(batch, why)
        except (FatalUpstreamError, RejectedRequestError) as refused:
            await self._dissolve(batch, refused)
            return
        batch = await self._book.note(batch._replace(status=told.status))
        self._open[batch.id] = batch, told
        rows = RowSettler(batch, self._upstream.model, self._shared)
        self._reading += 1
        try:
            try:
                await self._read(batch, told, rows)
            except BatchAbandoned as why:
                told = self._given_up(batch, why)
            await rows.settle_rest(told)
            await self._close(batch, told, rows)  # what is in the queue again goes when it is known whether it may
        finally:
            self._reading -= 1

    async def _close(self, batch: Batch, told: BatchStatus, rows: RowSettler) -> None:
        """All rows have their outcome: the batch ends, and with it perhaps the run's luck."""
        answered, failed = self._book.outcomes(batch)
        alone = len(self._open) == 1
        trouble = rows.closed or batch_failure(batch, told, answered, failed, self._shared.limits.outage_after, alone)
        self._most = self._room_after(batch, told, alone)
        await self._end(batch)
        log.info(
            "batch %s of %s: %s, %s of %s rows answered, %s failed",
            batch.name[:8], self._role, told.status, f"{answered:,}", f"{batch.rows:,}", f"{failed:,}",
        )  # fmt: skip
        if trouble:
            self._stop_for(OutageError(trouble))
        elif self._shared.waits(self._role):
            self._wanted.set()

    async def _dissolve(self, batch: Batch, refused: UpstreamError) -> None:
        """The service would not have the batch: its rows wait again, unpaid."""
        rows = RowSettler(batch, self._upstream.model, self._shared)
        await rows.take_back(str(refused))
        await self._end(batch._replace(status="refused"))
        self._stop_for(OutageError(f"{refused} No batch was made; its {batch.rows:,} rows wait, unpaid."))

    async def _end(self, batch: Batch) -> None:
        await self._book.end(batch)
        self._making.tidy(batch)
        del self._open[batch.id], self._steps[batch.id]
        self._see(batch.id)
        self._shared.metrics.batch(self._role, batch.status)
        self._shared.metrics.open_batches.labels(self._role).dec()
        self._ended.set()

    async def _until_ended(self, batch: Batch) -> BatchStatus:
        said, looks = None, self._shared.limits.attempts
        while True:
            told = await self._patience.insist(batch, lambda: self._service.ask(batch.batch))
            self._see(batch.id)
            self._open[batch.id] = batch._replace(status=told.status), told
            if (told.status, told.done) != said:
                said = told.status, told.done
                log.info(
                    "batch %s of %s: %s, %s of %s done",
                    batch.name[:8], self._role, told.status, f"{told.done:,}", f"{batch.rows:,}",
                )  # fmt: skip
            if told.status in ENDED_STATUSES:
                if not (told.unfiled and looks):
                    return told
                looks -= 1
            elif told.status not in RUNNING_STATUSES or is_overdue(batch, time.time()):
                self._patience.bear_with(batch, f"Batch {told.id} is still {told.status!r}, as the service calls it.")
            await asyncio.sleep(self._config.poll_seconds)

    async def _read(self, batch: Batch, told: BatchStatus, rows: RowSettler) -> None:
        """All lines that the service has counted; once more, a few times, where some are not to be seen."""
        for _ in range(1 + self._patience.looks):
            if await self._patience.insist(batch, lambda: rows.read(self._service, told)) >= told.done:
                return
            await self._patience.between_looks()

    def _room_after(self, batch: Batch, told: BatchStatus, alone: bool) -> int:
        """Rows for one batch: fewer where even one alone was too large, more again when one has run."""
        if is_too_large(told):
            self._squeezed = not alone
            return max(1, batch.rows // 2) if alone else self._most
        return min(self._config.requests, 2 * self._most) if told.status == "completed" else self._most

    async def _unless_squeezed(self) -> None:
        """The service has no room beside what is under way: wait for some of it to end."""
        if self._squeezed and self._open:
            self._ended.clear()
            await self._ended.wait()
        self._squeezed = False

    def _given_up(self, batch: Batch, why: BatchAbandoned) -> BatchStatus:
        """Somebody has set the role live, so nobody waits for the service any more."""
        log.warning("batch %s of %s is given up: %s", batch.name[:8], self._role, why)
        return BatchStatus(batch.batch, LOST_BATCH, (), 0, 0, ())
