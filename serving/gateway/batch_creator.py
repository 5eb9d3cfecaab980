"""How a batch gets to its service, once and no more: uploaded, created, found again where nobody heard of it."""

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path

from qinglan.llm.batch_api import BatchService, BatchStatus
from qinglan.llm.batch_journal import Batch, BatchJournal
from qinglan.llm.upstream import RejectedRequestError
from serving.gateway.batch_retry import BatchRetry

log = logging.getLogger("serving.gateway.batches")


class BatchCreator:
    """One role's. Each step stands in the journal before the next; `noted` is told of it."""

    def __init__(
        self,
        service: BatchService,
        book: BatchJournal,
        journal: Path,
        patience: BatchRetry,
        noted: Callable[[Batch, BatchStatus | None], None],
    ) -> None:
        self._service, self._book, self._journal = service, book, journal
        self._patience, self._noted = patience, noted

    async def made(self, batch: Batch) -> Batch:
        """Upload and create what is not yet there; creation is never tried twice without looking for the first."""
        if batch.batch:
            return batch
        resumed = bool(batch.file)
        if not batch.file:
            file = await self._patience.insist(batch, lambda: self._upload(batch), refusable=True)
            batch = await self._note(batch._replace(file=file, status="uploaded"))
        there = batch

        async def create() -> BatchStatus:
            nonlocal resumed
            # Whatever the listing answers, it is no refusal of the batch, which may be there.
            if resumed and (found := await self._found(there)):
                return found
            resumed = True
            return await self._service.create(there.file, there.name)

        told = await self._patience.insist(batch, create, refusable=True)
        log.info("batch %s of %s: the service calls it %s", batch.name[:8], batch.role, told.id)
        return await self._note(batch._replace(batch=told.id, status=told.status), told)

    async def only_found(self, batch: Batch) -> Batch:
        """The role is live again: a batch that the service never got is not sent now."""
        if batch.batch:
            return batch
        told = await self._found(batch) if batch.file else None
        if told is None:
            raise RejectedRequestError("live", f"batches of {batch.role}: its asks are live again.")
        return await self._note(batch._replace(batch=told.id, status=told.status), told)

    def tidy(self, batch: Batch) -> None:
        """A gateway that was killed while it uploaded has left a file."""
        self._path(batch).unlink(missing_ok=True)

    async def _found(self, batch: Batch) -> BatchStatus | None:
        """Looked for more than once: a list may be behind."""
        for look in range(self._patience.looks):
            if look:
                await self._patience.between_looks()
            if told := await self._patience.insist(batch, lambda: self._listed(batch)):
                return told
        return None

    async def _listed(self, batch: Batch) -> BatchStatus | None:
        return await self._service.find(batch.name, batch.file)

    async def _upload(self, batch: Batch) -> str:
        path = self._path(batch)
        try:
            await asyncio.to_thread(self._book.write_file, batch, path)
            return await self._service.upload(path, batch.name)
        finally:
            path.unlink(missing_ok=True)

    def _path(self, batch: Batch) -> Path:
        return self._journal.with_name(f"{self._journal.name}.{batch.name}.jsonl")

    async def _note(self, batch: Batch, told: BatchStatus | None = None) -> Batch:
        await self._book.note(batch)
        self._noted(batch, told)
        return batch
