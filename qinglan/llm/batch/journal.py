"""Batches in the journal: their rows, their progress, and the outcome of every row.

Each state of a batch is on disk before the next step: made (its attempts count as sent, the money is reserved),
uploaded (the service's file), created (the service's batch), ended. After a kill the next process resumes from the
last state.
"""

import sqlite3
import time
import uuid
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

from qinglan.errors import ConfigError
from qinglan.llm.batch.api import REQUEST_LINE, REQUEST_LINE_OVERHEAD
from qinglan.llm.paid.group_commit import SqlStatement
from qinglan.llm.paid.journal import Call, Entry, Journal, sent_statements
from qinglan.llm.usable_answer import is_cut

IN_OPEN_BATCH = "outcome = 'sent' AND batch IS NOT NULL"
REJECTED_REASONS = ("rejected", "refused")
"""Failure reasons of calls that another batch would not answer either, because the service rejected the request
itself."""

REJECTED = f"(state = 'failed' AND reason IN {REJECTED_REASONS})"

DROP_NEVER_UPLOADED = (
    f"UPDATE attempts SET outcome = 'rejected', detail = 'the batch was never uploaded', cost = 0 "
    f"WHERE {IN_OPEN_BATCH} AND batch IN (SELECT id FROM batches WHERE file = '')",
    "UPDATE batches SET status = 'never uploaded', ended = 1 WHERE NOT ended AND file = ''",
)
GIVE_UP = (
    *DROP_NEVER_UPLOADED,
    f"UPDATE attempts SET outcome = 'lost', detail = 'the batch was given up' WHERE {IN_OPEN_BATCH}",
    "UPDATE batches SET status = 'given up', ended = 1 WHERE NOT ended",
)


class Batch(NamedTuple):
    """One batch as the journal stores it."""

    id: int
    role: str
    name: str
    """Our name in the batch's metadata, by which it is found if the answer to its creation was lost."""

    made_at: float
    rows: int
    factor: float
    """Price of the batch's calls as a share of the live price."""

    file: str
    batch: str
    """Ids of the file and of the batch at the service; empty until they exist."""

    status: str


class BatchCall(NamedTuple):
    """A call that a batch can answer."""

    call: Call
    entry: Entry
    reserved: float
    """Largest possible cost at the batch price."""


class BatchRow(NamedTuple):
    """One row of a batch: an attempt to get the answer to a call."""

    attempt: int
    call: str
    step: str
    row: str
    reserved: float
    is_open: bool
    """True if the row has no outcome yet."""


class BatchJournal:
    """Stores batches in the journal. Only the process that owns the journal writes to it, so nothing changes between
    two statements."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal

    def open(self) -> list[Batch]:
        rows = self._journal.read(f"SELECT {', '.join(Batch._fields)} FROM batches WHERE NOT ended ORDER BY id")
        return [Batch(*row) for row in rows]

    def settled_keys(self) -> set[str]:
        """Return the keys of calls that need no batch: answered, in an open batch, or rejected by the service."""
        query = (
            f"SELECT key FROM calls WHERE state = 'answered' OR {REJECTED} "
            f"UNION SELECT call FROM attempts WHERE {IN_OPEN_BATCH}"
        )
        return {str(row[0]) for row in self._journal.read(query)}

    def answered_prompts(self) -> set[str]:
        """Return the keys of prompts (see prompt_key) that have a complete answer. It is reused under any length
        limit."""
        query = "SELECT prompt, response FROM prompts JOIN calls ON key = call WHERE state = 'answered'"
        return {str(prompt) for prompt, response in self._journal.read(query) if not is_cut(response)}

    async def make(self, role: str, calls: Sequence[BatchCall], factor: float) -> Batch:
        """Store a new batch in the journal, with its calls and the money reserved for them, before anything is
        sent."""
        number = int(self._journal.read("SELECT coalesce(max(id), 0) + 1 FROM batches")[0][0])
        batch = Batch(number, role, uuid.uuid4().hex, time.time(), len(calls), factor, "", "", "made")
        statements: list[SqlStatement] = [
            ("INSERT INTO batches (id, role, name, made_at, rows, factor) VALUES (?, ?, ?, ?, ?, ?)", batch[:6])
        ]
        for attempt, item in enumerate(calls, self._journal.numbers(len(calls))):
            statements += sent_statements(attempt, item.call, item.entry, item.reserved, number)
        await self._journal.write(*statements)
        return batch

    async def note(self, batch: Batch, ended: bool = False) -> Batch:
        """Store a batch's file, id and status at the service."""
        await self._journal.write(
            (
                "UPDATE batches SET file = ?, batch = ?, status = ?, ended = ? WHERE id = ?",
                (*batch[6:9], ended, batch.id),
            )
        )
        return batch

    async def give_up(self) -> None:
        """End all open batches in the journal without their answers; rows of uploaded batches count as possibly
        billed."""
        await self._journal.write(*((statement, ()) for statement in GIVE_UP))

    def write_file(self, batch: Batch, path: Path) -> None:
        """Write the file of a batch, one line per request. This runs in another thread, so it opens its own
        connection."""
        query = (
            "SELECT key, request FROM attempts JOIN calls ON key = call "
            f"WHERE {IN_OPEN_BATCH} AND batch = ? ORDER BY id"
        )
        with closing(sqlite3.connect(self._journal.path, isolation_level=None)) as database, path.open("wb") as file:
            for key, request in database.execute(query, (batch.id,)):
                file.write(REQUEST_LINE % (key.encode(), request))

    def rows(self, batch: Batch) -> list[BatchRow]:
        """Return all rows of a batch, in the order of its file."""
        query = "SELECT id, call, step, row, reserved, outcome = 'sent' FROM attempts WHERE batch = ? ORDER BY id"
        return [BatchRow(*row) for row in self._journal.read(query, (batch.id,))]

    def unanswered(self, batch: Batch) -> list[BatchCall]:
        """Return the calls of a batch that got no answer, but may get one in another batch, in the order of the
        file."""
        query = (
            "SELECT key, model, sample, request, step, row, role, reserved FROM attempts JOIN calls ON key = call "
            f"WHERE batch = ? AND state != 'answered' AND NOT ({REJECTED}) ORDER BY id"
        )
        rows = self._journal.read(query, (batch.id,))
        return [BatchCall(Call(*row[:4]), Entry(*row[4:7]), row[7]) for row in rows]

    def totals(self, batch: Batch) -> tuple[int, float]:
        """Return the number of answered rows of a batch, and the cost of all its rows."""
        query = "SELECT coalesce(sum(outcome = 'answered'), 0), coalesce(sum(cost), 0) FROM attempts WHERE batch = ?"
        return tuple(self._journal.read(query, (batch.id,))[0])


async def refuse_open_batches(journal: Journal) -> None:
    """Refuse a journal with open batches, because live calls would pay for the same answers again.

    A batch that was never uploaded cannot have cost anything and is dropped.
    """
    await journal.write(*((statement, ()) for statement in DROP_NEVER_UPLOADED))
    if batches := BatchJournal(journal).open():
        names = ", ".join(batch.batch or batch.name for batch in batches)
        raise ConfigError(
            f"{journal.path}: what `qinglan prepay` sent is not fetched yet: {names}. Live calls would pay for it "
            "again. Run `qinglan prepay` once more: it fetches the answers and pays nothing new before it asks. "
            "If the batches are gone for good, `qinglan prepay --give-up` leaves them."
        )


def rows_that_fit(calls: Sequence[BatchCall], room: float, most_rows: int, most_bytes: int) -> int:
    """Count how many of the first calls fit in one batch, given its limits of rows and bytes and the money left."""
    size, money = 0, 0.0
    for count, item in enumerate(calls[:most_rows]):
        size += len(item.call.request) + REQUEST_LINE_OVERHEAD
        money += item.reserved
        if size > most_bytes or money > room:
            return count
    return min(len(calls), most_rows)
