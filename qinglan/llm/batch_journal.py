"""What the journal knows of batches: what each holds, how far it is, and how every row of it ended.

A batch's life stands on disk before anything happens to it: made (its attempts are sent, the money is reserved),
uploaded (the service's file), created (the service's batch), ended. Killed at any point, it goes on from there.
"""

import sqlite3
import time
import uuid
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

from qinglan.llm.batch_api import REQUEST_LINE
from qinglan.llm.batch_queue import DELETE_ALREADY_PAID, IN_QUEUE, QueueItem, requeue_statement
from qinglan.llm.group_commit import SqlStatement
from qinglan.llm.journal import IN_OPEN_BATCH, Journal, end_attempt_statement, fail_call_statement

TAKE_BATCH = """
INSERT INTO batches (id, role, name, made_at, factor, rows)
SELECT ?, ?, ?, ?, ?, count(*) FROM queue WHERE role = ? AND place <= ?
"""
TAKE_CALLS = """
INSERT INTO calls (key, model, sample, request, state) SELECT call, model, sample, request, 'sent' FROM queue
WHERE role = ? AND place <= ? ON CONFLICT DO UPDATE SET state = 'sent'
"""
TAKE_ATTEMPTS = """
INSERT INTO attempts (id, call, step, row, role, sent_at, reserved, outcome, cost, batch, tries)
SELECT ? + row_number() OVER (ORDER BY place), call, step, row, role, ?, reserved, 'sent', reserved, ?, tries
FROM queue WHERE role = ? AND place <= ?
"""


class Batch(NamedTuple):
    """One batch as the journal knows it."""

    id: int
    role: str
    name: str
    """Ours, in the batch's metadata: by it a batch is found whose creation nobody heard of."""

    made_at: float
    rows: int
    factor: float
    file: str
    batch: str
    status: str


class BatchRow(NamedTuple):
    """One attempt of a batch that has no outcome yet."""

    attempt: int
    call: str
    reserved: float
    tries: int
    step: str


class BatchJournal:
    """The journal's pages on batches."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._next_batch = int(journal.read("SELECT coalesce(max(id), 0) + 1 FROM batches")[0][0])

    def batch_of(self, key: str) -> str:
        """The batch that is bringing an answer, as the service calls it, or else as we do; empty for none."""
        found = self._journal.read(
            "SELECT coalesce(nullif(batches.batch, ''), name) FROM attempts "
            "JOIN batches ON batches.id = attempts.batch WHERE call = ? AND outcome = 'sent'",
            (key,),
        )
        return str(found[0][0]) if found else ""

    def batch_role(self, key: str) -> str:
        """Under which role the batch went that is bringing an answer; empty for none."""
        found = self._journal.read(f"SELECT role FROM attempts WHERE {IN_OPEN_BATCH} AND call = ?", (key,))
        return str(found[0][0]) if found else ""

    def steps(self, batch: int) -> set[str]:
        """Whose asks are under way in it."""
        query = f"SELECT DISTINCT step FROM attempts WHERE {IN_OPEN_BATCH} AND batch = ?"
        return {str(row[0]) for row in self._journal.read(query, (batch,))}

    async def make(self, role: str, taken: Sequence[QueueItem], factor: float) -> tuple[Batch, float]:
        """The head of the queue as a batch, and its money: on disk before anything leaves.

        What somebody else has sent meanwhile stays out of it, in the same commit: it may have no row in the end.
        """
        number, self._next_batch = self._next_batch, self._next_batch + 1
        name, made_at, last = uuid.uuid4().hex, time.time(), taken[-1].place
        before = self._journal.numbers(len(taken)) - 1
        await self._journal.write(
            (DELETE_ALREADY_PAID, (role, last)),
            (TAKE_BATCH, (number, role, name, made_at, factor, role, last)),
            (TAKE_CALLS, (role, last)),
            (TAKE_ATTEMPTS, (before, made_at, number, role, last)),
            ("DELETE FROM queue WHERE role = ? AND place <= ?", (role, last)),
        )
        held = f"SELECT count(*), coalesce(sum(reserved), 0) FROM attempts WHERE {IN_OPEN_BATCH} AND batch = ?"
        [(rows, money)] = self._journal.read(held, (number,))
        return Batch(number, role, name, made_at, rows, factor, "", "", "made"), float(money)

    def open(self) -> list[Batch]:
        """All batches that have not ended, the oldest first."""
        found = self._journal.read(f"SELECT {', '.join(Batch._fields)} FROM batches WHERE NOT ended ORDER BY id")
        return [Batch(*row) for row in found]

    async def note(self, batch: Batch) -> Batch:
        """Where it stands at the service."""
        await self._journal.write(
            ("UPDATE batches SET file = ?, batch = ?, status = ? WHERE id = ?", (*batch[6:9], batch.id))
        )
        return batch

    async def end(self, batch: Batch) -> None:
        await self._journal.write(
            ("UPDATE batches SET status = ?, ended = 1 WHERE id = ?", (batch.status, batch.id)),
        )

    def write_file(self, batch: Batch, path: Path) -> None:
        """The batch's lines, as the service wants them. For a thread: it reads with a connection of its own."""
        calls = "SELECT key, request FROM attempts JOIN calls ON key = call"
        query = f"{calls} WHERE {IN_OPEN_BATCH} AND batch = ? ORDER BY id"
        with closing(sqlite3.connect(self._journal.path, isolation_level=None)) as database, path.open("wb") as file:
            for key, request in database.execute(query, (batch.id,)):
                file.write(REQUEST_LINE % (key.encode(), request))

    def row(self, batch: Batch, key: str) -> tuple[BatchRow, bool] | None:
        """The row that a line answers, and whether it has its outcome already; None for a stranger's line."""
        found = self._journal.read(
            "SELECT id, call, reserved, tries, step, outcome != 'sent' FROM attempts WHERE call = ? AND batch = ?",
            (key, batch.id),
        )
        return (BatchRow(*found[0][:5]), bool(found[0][5])) if found else None

    def unsettled(self, batch: Batch, most: int) -> list[BatchRow]:
        """Rows that still have no outcome, in the order of the file."""
        found = self._journal.read(
            "SELECT id, call, reserved, tries, step FROM attempts "
            f"WHERE {IN_OPEN_BATCH} AND batch = ? ORDER BY id LIMIT ?",
            (batch.id, most),
        )
        return [BatchRow(*row) for row in found]

    def outcomes(self, batch: Batch) -> tuple[int, int]:
        """How many of its rows were answered, and how many were given up."""
        found = self._journal.read(
            "SELECT coalesce(sum(outcome = 'answered'), 0), "
            f"coalesce(sum(outcome != 'answered' AND state = 'failed' AND NOT {IN_QUEUE}), 0) "
            "FROM attempts JOIN calls ON key = call WHERE batch = ?",
            (batch.id,),
        )
        return int(found[0][0]), int(found[0][1])

    def first(self, batch: Batch) -> int:
        """The attempt of the file's first line; the others follow by number."""
        return int(self._journal.read("SELECT min(id) FROM attempts WHERE batch = ?", (batch.id,))[0][0])


def end_row_statement(row: BatchRow, said: str, cost: float = 0.0) -> SqlStatement:
    return end_attempt_statement(row.attempt, "lost" if cost else "rejected", said, cost)


def requeue_row_statements(row: BatchRow, said: str, cost: float, counts: bool) -> tuple[SqlStatement, ...]:
    """Its attempt ends, and it waits for the next batch; `counts` whether that was one of its tries."""
    return end_row_statement(row, said, cost), requeue_statement(row.attempt, counts)


def fail_row_statements(row: BatchRow, reason: str, said: str, raw: str, cost: float) -> tuple[SqlStatement, ...]:
    return end_row_statement(row, said, cost), fail_call_statement(row.call, reason, raw)
