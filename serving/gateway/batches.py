"""Asks that can wait, by batch: queued on disk, sent as files, polled on, read row by row.

Everything that a batch goes through stands in the journal first, so a gateway that was killed goes on where it was.
"""

import asyncio
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, get_args
from uuid import uuid4

from qinglan.errors import OutageError, QinglanError, RowError
from qinglan.llm.batch_journal import BatchJournal
from qinglan.llm.batch_queue import BatchQueue, DeferredCall
from qinglan.llm.budget import Budget
from qinglan.llm.config import BatchConfig, BatchStep, Limits
from qinglan.llm.journal import Entry, Journal
from qinglan.llm.upstream import Upstream
from serving.gateway.batch_rows import LEFT_TO_LIVE, BatchContext, WaiterResult
from serving.gateway.metrics import Metrics
from serving.gateway.role_batches import RoleBatches


class Waiter(NamedTuple):
    """Who waits for one call, and the role whose batches bring it: where two roles share a model, the other's."""

    role: str
    future: "asyncio.Future[bytes | None]"


class RunBatches:
    """All batches of a run: one line for each role that has them."""

    def __init__(
        self,
        journal: Journal,
        budget: Budget,
        upstreams: Mapping[str, Upstream],
        limits: Limits,
        metrics: Metrics,
    ) -> None:
        self._book, self._queue = BatchJournal(journal), BatchQueue(journal)
        self._journal, self._upstreams = journal, upstreams
        self._start = uuid4().hex
        """Names this gateway's start: its queue has what was announced since, and nothing older."""

        self._waiting: dict[str, Waiter] = {}
        shared = BatchContext(
            self._book, self._queue, journal, budget, limits, metrics, self._landed, self._stopped,
            lambda role: any(one.role == role for one in self._waiting.values()),
        )  # fmt: skip
        unfinished = self._book.open()
        roles = {batch.role for batch in unfinished} & upstreams.keys()
        roles |= {role for role, upstream in upstreams.items() if upstream.model.batch}
        # A role that is live again may have batches from before: they are polled on, and none is added.
        self._roles = {
            role: RoleBatches(role, upstreams[role], upstreams[role].model.batch or BatchConfig(), shared)
            for role in sorted(roles)
        }
        for role, line in self._roles.items():
            line.start([batch for batch in unfinished if batch.role == role])

    def stop(self) -> None:
        for line in self._roles.values():
            line.stop()

    async def aclose(self) -> None:
        """As good as a kill: the journal knows how far each batch is, and the service goes on."""
        for line in self._roles.values():
            await line.aclose()

    def takes(self, entry: Entry) -> bool:
        """Whether this ask waits for a batch."""
        return self._upstreams[entry.role].model.batches(entry.step)

    async def want(self, wanted: Iterable[DeferredCall]) -> str:
        """Queue what rows will ask for, until the gateway's start with this name ends.

        What is answered, under way or queued already stays as it is.
        """
        known = list(wanted)
        await self._queue.want(known, ahead=True)
        carrying = self._queue.queued_under(one.call.key for one in known)
        for role in (carrying | {one.entry.role for one in known}) & self._roles.keys():
            self._roles[role].wake()
        return self._start

    async def answer(self, one: DeferredCall) -> bytes:
        """The answer that a batch brings; a RowError when its row was given up."""
        key = one.call.key
        if self._queue.ahead(key, one.entry) and (found := self._queue.failure(key)):
            await self._queue.fetched(key, one.entry)
            raise RowError(*found)
        while (brought := await self._brought(one)) is None:
            pass  # the batch that had it left it: now it waits under its own name
        return brought

    async def _brought(self, one: DeferredCall) -> bytes | None:
        key = one.call.key
        waiter = self._waiting[key] = Waiter(one.entry.role, asyncio.get_running_loop().create_future())
        try:
            await self._queue.want([one], ahead=False)
            if (kept := self._journal.answer(key)) is not None:
                return kept
            role = self._queue.role_of(key)
            if role in self._roles and not waiter.future.done():
                waiter = self._waiting[key] = waiter._replace(role=role)
            self._roles[waiter.role].wake()
            return await waiter.future
        finally:
            self._waiting.pop(key, None)

    def goes_beside(self, entry: Entry) -> bool:
        """Whether this ask is sent live though a batch is bringing it: training cannot wait."""
        return entry.step not in get_args(BatchStep)

    async def check_not_under_way(self, key: str, entry: Entry) -> None:
        """Refuse to pay live for what a batch is bringing, now that its role is live again."""
        if self.goes_beside(entry) or all(line.idle for line in self._roles.values()):
            return
        if line := self._roles.get(self._book.batch_role(key)):
            await line.looked_at()
        if name := self._book.batch_of(key):
            raise self.under_way(entry, name)

    def under_way(self, entry: Entry, name: str = "") -> OutageError:
        return OutageError(
            f"{entry.step}/{entry.row} is in {f'batch {name}' if name else 'a batch'}, which is under way at the "
            "service. Live it would be paid twice: let it end, with batch mode on again, or cancel it there; then "
            "run again."
        )

    def paid_ahead(self, key: str, entry: Entry) -> bool:
        """Whether a batch was paid for this very row, which fetches the answer now: that is no hit."""
        return self.takes(entry) and self._queue.ahead(key, entry) == 1

    def state(self, step: str) -> dict[str, Any]:
        """How far a step's asks are; the error that holds them up, if there is one."""
        waiting = {role: line for role, line in self._roles.items() if self._upstreams[role].model.batches(step)}
        left, lines = self._queue.left(step, waiting), waiting.values()
        if any(left.values()):
            for line in lines:
                if line.trouble:
                    raise line.trouble
                line.nudge()
        done = sum(line.done_of(step) for line in lines)
        return {**left, "done": done, "batches": self.listed(), "start": self._start}

    @property
    def failure(self) -> QinglanError | None:
        """Why some batches do not go on until the gateway starts anew; None while all is well."""
        return next((line.failure for line in self._roles.values() if line.failure), None)

    def listed(self) -> list[dict[str, Any]]:
        """All batches under way, for people."""
        return [batch for line in self._roles.values() for batch in line.listed()]

    def _landed(self, key: str, outcome: WaiterResult) -> None:
        if (waiter := self._waiting.pop(key, None)) and not waiter.future.done():
            _resolve_future(waiter.future, outcome)

    def _stopped(self, role: str, error: QinglanError) -> None:
        for waiter in self._waiting.values():
            if waiter.role == role and not waiter.future.done():
                _resolve_future(waiter.future, error)


def _resolve_future(future: "asyncio.Future[bytes | None]", outcome: WaiterResult) -> None:
    if isinstance(outcome, QinglanError):
        future.set_exception(outcome)
    else:
        future.set_result(None if outcome == LEFT_TO_LIVE else outcome)
