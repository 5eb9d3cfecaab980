"""One role's batches: filled from the queue, sent, followed, read.

fill():   the queue's head, as much as a file holds and the money allows, becomes a batch in the journal
follow(): uploaded -> created -> ended -> every row has its outcome; each step stands on disk before the next
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from qinglan.errors import BudgetError, OutageError, QinglanError
from qinglan.llm.batch_api import ENDED, MOST_BYTES, BatchService, Forgotten, Told
from qinglan.llm.batch_book import Batch
from qinglan.llm.batch_queue import rows_that_fit
from qinglan.llm.config import BatchConfig
from qinglan.llm.upstream import Closed, Refused, Unanswered, Upstream
from serving.gateway.batch_rows import FORGOTTEN, Rows, Shared, is_too_large, whole_trouble

log = logging.getLogger("serving.gateway.batches")

FIRST_PAUSE = 0.5
Result = TypeVar("Result")


class RoleBatches:
    """One role's way to its service's batches."""

    def __init__(self, role: str, upstream: Upstream, config: BatchConfig, shared: Shared) -> None:
        self._role, self._upstream, self._config, self._shared = role, upstream, config, shared
        self._service = BatchService(upstream)
        self._book, self._queue = shared.book, shared.queue
        self._wanted, self._ended = asyncio.Event(), asyncio.Event()
        self._most = config.requests
        self._last_wish = 0.0
        self._open: dict[int, tuple[Batch, Told | None]] = {}
        self._steps: dict[int, set[str]] = {}
        self._reading = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self.trouble: QinglanError | None = None
        """What holds this role's batches up; whoever waits is told."""

    def start(self, unfinished: Sequence[Batch]) -> None:
        """Go on with the batches from before. What else is wanted, somebody will say."""
        for batch in unfinished:
            log.info("batch %s of %s: going on, it was %s", batch.name[:8], self._role, batch.status)
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
        self._last_wish = asyncio.get_running_loop().time()
        self.trouble = None
        self._wanted.set()

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
            except QinglanError as error:
                self._stop_for(error)
            except Exception:
                log.exception("batches of %s", self._role)
                self._stop_for(OutageError(f"batches of {self._role}: an error of ours. See the gateway's log."))

        task = asyncio.create_task(guarded())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _stop_for(self, error: QinglanError) -> None:
        """Nothing more is sent until somebody asks again."""
        log.warning("batches of %s: %s", self._role, error)
        self.trouble = error
        self._wanted.clear()
        self._shared.stopped(self._role, error)

    def _hold_up(self, failure: Unanswered) -> None:
        """Whoever waits is told; the batch is looked at again and again."""
        self._stop_for(OutageError(f"{failure} What is in a batch is not lost: run again later, it is polled on."))

    async def _fill(self) -> None:
        """Make batches of what is in the queue, for as long as somebody wants it."""
        while True:
            await self._wanted.wait()
            await self._gathered()
            if not self._wanted.is_set():
                continue  # stopped meanwhile
            self._wanted.clear()
            queue = await self._queue.queued(self._role, self._most)
            if not queue:
                continue
            taken = queue[: rows_that_fit(queue, self._shared.budget.room, self._most, MOST_BYTES)]
            if not taken:
                await self._when_there_is_room(queue[0].reserved)
                continue
            held = sum(one.reserved for one in taken)
            self._shared.budget.hold(held)  # before it is written: a live call may look at the room meanwhile
            try:
                batch, money = await self._book.make(self._role, taken, self._config.price_factor)
            except BaseException:
                self._shared.budget.settle(held, 0.0)
                raise
            self._shared.budget.settle(held - money, 0.0)
            self._wanted.set()
            if not batch.rows:  # all of it was sent live meanwhile
                await self._book.end(batch._replace(status="empty"))
                continue
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
        elif budget.reserved:
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
            batch = await self._created(batch)
            told = await self._until_ended(batch)
        except Forgotten as forgotten:
            told = self._given_up(batch, forgotten)
        except (Closed, Refused) as refused:
            await self._dissolve(batch, refused)
            return
        batch = await self._book.note(batch._replace(status=told.status))
        self._open[batch.id] = batch, told
        rows = Rows(batch, self._upstream.model, self._shared)
        self._reading += 1
        try:
            try:
                await self._insist(lambda: rows.read(self._service, told))
            except Forgotten as forgotten:
                told = self._given_up(batch, forgotten)
            await rows.settle_rest(told)
            await self._close(batch, told, rows)  # what is in the queue again goes when it is known whether it may
        finally:
            self._reading -= 1

    async def _close(self, batch: Batch, told: Told, rows: Rows) -> None:
        """All rows have their outcome: the batch ends, and with it perhaps the run's luck."""
        answered, failed = self._book.outcomes(batch)
        trouble = rows.closed or whole_trouble(batch, told, answered, failed, self._shared.limits.outage_after)
        if is_too_large(told):
            self._most = max(1, batch.rows // 2)
        await self._end(batch)
        log.info(
            "batch %s of %s: %s, %s of %s rows answered, %s failed",
            batch.name[:8], self._role, told.status, f"{answered:,}", f"{batch.rows:,}", f"{failed:,}",
        )  # fmt: skip
        if trouble:
            self._stop_for(OutageError(trouble))
        elif self._shared.waits(self._role):
            self._wanted.set()

    async def _dissolve(self, batch: Batch, refused: Unanswered) -> None:
        """The service would not have the batch: its rows wait again, unpaid."""
        rows = Rows(batch, self._upstream.model, self._shared)
        await rows.take_back(str(refused))
        await self._end(batch._replace(status="refused"))
        self._stop_for(OutageError(f"{refused} No batch was made; its {batch.rows:,} rows wait, unpaid."))

    async def _end(self, batch: Batch) -> None:
        await self._book.end(batch)
        self._path(batch).unlink(missing_ok=True)  # left by a gateway that was killed while it uploaded
        del self._open[batch.id], self._steps[batch.id]
        self._shared.metrics.batch(self._role, batch.status)
        self._shared.metrics.open_batches.labels(self._role).dec()
        self._ended.set()

    async def _created(self, batch: Batch) -> Batch:
        """Upload and create what is not yet there; creation is never tried twice without looking for the first."""
        if batch.batch:
            return batch
        resumed = bool(batch.file)
        if self._upstream.model.batch is None:
            return await self._found_or_given_up(batch)
        if not batch.file:
            file = await self._insist(lambda: self._upload(batch), refusable=True)
            batch = await self._book.note(batch._replace(file=file, status="uploaded"))
            self._open[batch.id] = batch, None
        made = batch

        async def create() -> Told:
            nonlocal resumed
            # Whatever the listing answers, it is no refusal of the batch, which may be there.
            if resumed and (found := await self._insist(lambda: self._service.find(made.name, made.made_at))):
                return found
            resumed = True
            return await self._service.create(made.file, made.name)

        told = await self._insist(create, refusable=True)
        log.info("batch %s of %s: the service calls it %s", batch.name[:8], self._role, told.id)
        batch = await self._book.note(batch._replace(batch=told.id, status=told.status))
        self._open[batch.id] = batch, told
        return batch

    async def _found_or_given_up(self, batch: Batch) -> Batch:
        """The role is live again: a batch that the service never got is not sent now."""
        name, since = batch.name, batch.made_at
        told = await self._insist(lambda: self._service.find(name, since)) if batch.file else None
        if told is None:
            raise Refused("live", f"batches of {self._role}: its asks are live again.")
        return await self._book.note(batch._replace(batch=told.id, status=told.status))

    async def _upload(self, batch: Batch) -> str:
        path = self._path(batch)
        try:
            await asyncio.to_thread(self._book.write_file, batch, path)
            return await self._service.upload(path, batch.name)
        finally:
            path.unlink(missing_ok=True)

    def _path(self, batch: Batch) -> Path:
        path = self._shared.journal.path
        return path.with_name(f"{path.name}.{batch.name}.jsonl")

    async def _until_ended(self, batch: Batch) -> Told:
        said, looks = None, self._shared.limits.attempts
        while True:
            told = await self._insist(lambda: self._service.ask(batch.batch))
            self._open[batch.id] = batch._replace(status=told.status), told
            if (told.status, told.done) != said:
                said = told.status, told.done
                log.info(
                    "batch %s of %s: %s, %s of %s done",
                    batch.name[:8], self._role, told.status, f"{told.done:,}", f"{batch.rows:,}",
                )  # fmt: skip
            if told.status in ENDED:
                if not (told.unfiled and looks):
                    return told
                looks -= 1
            await asyncio.sleep(self._config.poll_seconds)

    def _given_up(self, batch: Batch, forgotten: Forgotten) -> Told:
        """Somebody has set the role live, so nobody waits for the service to know it again."""
        log.warning("batch %s of %s is given up: %s", batch.name[:8], self._role, forgotten)
        return Told(batch.batch, FORGOTTEN, (), 0, 0, ())

    async def _insist(self, work: Callable[[], Awaitable[Result]], refusable: bool = False) -> Result:
        """Tried for as long as it takes, since what is under way was paid for; who waits hears of an outage.

        Only an upload or a creation can be refused: then there is nothing to go on with. What the service has
        forgotten is waited for too, until somebody sets the role live: then it is Forgotten.
        """
        failures, pause = 0, min(FIRST_PAUSE, self._config.poll_seconds)
        while True:
            try:
                found = await work()
            except (Closed, Refused) as refused:
                failures += 1
                given_up = isinstance(refused, Forgotten) and self._upstream.model.batch is None
                if refusable or (given_up and failures >= self._shared.limits.attempts):
                    raise
                self._hold_up(refused)
            except Unanswered as failure:
                failures += 1
                log.warning("batches of %s: %s", self._role, failure)
                if failures >= self._shared.limits.attempts:
                    self._hold_up(failure)
            else:
                self.trouble = None if failures else self.trouble
                return found
            await asyncio.sleep(pause)
            pause = min(2 * pause, max(self._config.poll_seconds, FIRST_PAUSE))
