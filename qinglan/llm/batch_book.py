"""What the journal knows of batches: who waits for one, what each holds, and how every row of it ended.

A batch's life stands on disk before anything happens to it: made (its attempts are sent, the money is reserved),
uploaded (the service's file), created (the service's batch), ended. Killed at any point, it goes on from there.
"""

import sqlite3
import time
import uuid
from collections.abc import Iterable, Sequence
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

import orjson

from qinglan.llm.commits import Statement
from qinglan.llm.journal import ENTER, UNDER_WAY, Call, Entry, Journal, given_up, outcome_of

LINE = b'{"custom_id":"%s","method":"POST","url":"/v1/chat/completions","body":%s}\n'
LINE_BYTES = len(LINE) + 64
"""Around a request in a batch's file: the call's key is 64 characters."""

NOT_KNOWN = """
NOT EXISTS (SELECT 1 FROM calls WHERE key = :call AND state = 'answered')
"""
IN_QUEUE = "EXISTS (SELECT 1 FROM queue WHERE call = key)"
LAST_DETAIL = "SELECT detail FROM attempts WHERE call = key ORDER BY id DESC LIMIT 1"
QUEUE = f"""
INSERT OR IGNORE INTO queue (call, model, sample, request, step, row, role, reserved, tries)
SELECT :call, :model, :sample, :request, :step, :row, :role, :reserved, 1
WHERE {NOT_KNOWN} AND NOT EXISTS (SELECT 1 FROM attempts WHERE call = :call AND outcome = 'sent')
"""
# changes() is 1 when the statement before it put the call into the queue: then this row is the one that pays.
AHEAD = f"""
INSERT INTO entries (step, row, role, call, hits, waiting, ahead)
SELECT :step, :row, :role, :call, 0, 0, CASE changes() WHEN 1 THEN 1 ELSE 2 END WHERE {NOT_KNOWN}
ON CONFLICT DO UPDATE SET ahead = CASE WHEN 1 IN (ahead, excluded.ahead) THEN 1 ELSE 2 END
"""
AGAIN = """
INSERT OR IGNORE INTO queue (call, model, sample, request, step, row, role, reserved, tries)
SELECT key, model, sample, request, step, row, role, reserved, tries + ?
FROM attempts JOIN calls ON key = call WHERE id = ? AND state != 'answered'
"""
TAKE_CALLS = """
INSERT INTO calls (key, model, sample, request, state) SELECT call, model, sample, request, 'sent' FROM queue
WHERE role = ? AND place <= ? ON CONFLICT DO UPDATE SET state = 'sent' WHERE calls.state != 'answered'
"""
TAKE_ATTEMPTS = """
INSERT INTO attempts (id, call, step, row, role, sent_at, reserved, outcome, cost, batch, tries)
SELECT ? + row_number() OVER (ORDER BY place), call, step, row, role, ?, reserved, 'sent', reserved, ?, tries
FROM queue WHERE role = ? AND place <= ?
"""
NO_LONGER = """
DELETE FROM queue WHERE role = ? AND (
  EXISTS (SELECT 1 FROM calls WHERE key = queue.call AND state = 'answered')
  OR EXISTS (SELECT 1 FROM attempts WHERE call = queue.call AND outcome = 'sent')
)
"""
"""Somebody else has paid for it meanwhile, or is about to."""


class Wanted(NamedTuple):
    """One ask that can wait, with the most that it can cost in a batch."""

    call: Call
    entry: Entry
    reserved: float

    def values(self) -> dict[str, object]:
        key, model, sample, request = self.call
        return {"call": key, "model": model, "sample": sample, "request": request, "reserved": self.reserved,
                **self.entry._asdict()}  # fmt: skip


class Queued(NamedTuple):
    """One place of the queue."""

    place: int
    size: int
    reserved: float


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


class Row(NamedTuple):
    """One attempt of a batch that has no outcome yet."""

    attempt: int
    call: str
    reserved: float
    tries: int


class BatchBook:
    """The journal's pages on batches."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._next_batch = int(journal.read("SELECT coalesce(max(id), 0) + 1 FROM batches")[0][0])

    async def want(self, wanted: Iterable[Wanted], ahead: bool) -> None:
        """Into the queue what nobody has answered, sent or queued. `ahead`: the rows will ask for it later."""
        statements: list[Statement] = []
        for one in wanted:
            statements.append((QUEUE, one.values()))
            statements.append((AHEAD, one.values()) if ahead else (ENTER, (*one.entry, one.call.key, 0)))
        if statements:
            await self._journal.write(*statements)

    def ahead(self, key: str, entry: Entry) -> int:
        """1: a batch was paid for this row's sake, and the row has not fetched its answer. 2: for another's."""
        found = self._journal.read(
            "SELECT ahead FROM entries WHERE step = ? AND row = ? AND role = ? AND call = ?", (*entry, key)
        )
        return int(found[0][0]) if found else 0

    def failure(self, key: str) -> tuple[str, str, str] | None:
        """Why a call was given up: a short word, what was said, and what came instead of an answer."""
        found = self._journal.read(
            f"SELECT reason, response, ({LAST_DETAIL}) FROM calls "
            f"WHERE key = ? AND state = 'failed' AND NOT {IN_QUEUE}",
            (key,),
        )
        if not found:
            return None
        reason, raw, said = found[0][0], bytes(found[0][1] or b"").decode("utf-8", "replace"), found[0][2] or ""
        return reason, said.removesuffix(raw).strip() or reason, raw

    async def fetched(self, key: str, entry: Entry) -> None:
        """The row knows how its ask ended."""
        await self._journal.write((ENTER, (*entry, key, 0)))

    def left(self, step: str) -> dict[str, int]:
        """Asks of a step that wait, and those that are in batches under way."""
        waiting = self._journal.read("SELECT count(*) FROM queue WHERE step = ?", (step,))[0][0]
        sent = self._journal.read(f"SELECT count(*) FROM attempts WHERE {UNDER_WAY} AND step = ?", (step,))[0][0]
        return {"waiting": int(waiting), "sent": int(sent)}

    def batch_of(self, key: str) -> str:
        """The batch that is bringing an answer, as the service calls it, or else as we do; empty for none."""
        found = self._journal.read(
            "SELECT coalesce(nullif(batches.batch, ''), name) FROM attempts "
            "JOIN batches ON batches.id = attempts.batch WHERE call = ? AND outcome = 'sent'",
            (key,),
        )
        return str(found[0][0]) if found else ""

    def role_of(self, key: str) -> str | None:
        """Under which role a call is queued or in a batch: the role that asked first, whoever asks since."""
        sent = f"SELECT role FROM attempts WHERE {UNDER_WAY} AND call = ?"
        query = f"SELECT role FROM queue WHERE call = ? UNION ALL {sent}"
        found = self._journal.read(query, (key, key))
        return str(found[0][0]) if found else None

    def queued_under(self, keys: Iterable[str]) -> set[str]:
        """The roles whose queues hold some of these calls."""
        listed = orjson.dumps(list(keys)).decode()
        query = "SELECT DISTINCT role FROM queue WHERE call IN (SELECT value FROM json_each(?))"
        return {str(row[0]) for row in self._journal.read(query, (listed,))}

    def steps(self, batch: int) -> set[str]:
        """Whose asks are under way in it."""
        query = f"SELECT DISTINCT step FROM attempts WHERE {UNDER_WAY} AND batch = ?"
        return {str(row[0]) for row in self._journal.read(query, (batch,))}

    def waiting(self, role: str, most: int) -> int:
        """How long a role's queue is, counted up to `most`."""
        query = "SELECT count(*) FROM (SELECT 1 FROM queue WHERE role = ? LIMIT ?)"
        return int(self._journal.read(query, (role, most))[0][0])

    async def queued(self, role: str, most: int) -> list[Queued]:
        """The head of a role's queue, without what has been answered since."""
        await self._journal.write((NO_LONGER, (role,)))
        found = self._journal.read(
            "SELECT place, length(request), reserved FROM queue WHERE role = ? ORDER BY place LIMIT ?", (role, most)
        )
        return [Queued(*row) for row in found]

    async def make(self, role: str, taken: Sequence[Queued], factor: float) -> Batch:
        """The head of the queue as a batch: on disk with its money before anything leaves."""
        number, self._next_batch = self._next_batch, self._next_batch + 1
        made = Batch(number, role, uuid.uuid4().hex, time.time(), len(taken), factor, "", "", "made")
        last, before = taken[-1].place, self._journal.numbers(len(taken)) - 1
        await self._journal.write(
            ("INSERT INTO batches (id, role, name, made_at, rows, factor) VALUES (?, ?, ?, ?, ?, ?)", made[:6]),
            (TAKE_CALLS, (role, last)),
            (TAKE_ATTEMPTS, (before, made.made_at, number, role, last)),
            ("DELETE FROM queue WHERE role = ? AND place <= ?", (role, last)),
        )
        return made

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
        query = (
            f"SELECT key, request FROM attempts JOIN calls ON key = call WHERE {UNDER_WAY} AND batch = ? ORDER BY id"
        )
        with closing(sqlite3.connect(self._journal.path, isolation_level=None)) as database, path.open("wb") as file:
            for key, request in database.execute(query, (batch.id,)):
                file.write(LINE % (key.encode(), request))

    def row(self, batch: Batch, key: str) -> tuple[Row, bool] | None:
        """The row that a line answers, and whether it has its outcome already; None for a stranger's line."""
        found = self._journal.read(
            "SELECT id, call, reserved, tries, outcome != 'sent' FROM attempts WHERE call = ? AND batch = ?",
            (key, batch.id),
        )
        return (Row(*found[0][:4]), bool(found[0][4])) if found else None

    def unsettled(self, batch: Batch, most: int) -> list[Row]:
        """Rows that still have no outcome, in the order of the file."""
        found = self._journal.read(
            f"SELECT id, call, reserved, tries FROM attempts WHERE {UNDER_WAY} AND batch = ? ORDER BY id LIMIT ?",
            (batch.id, most),
        )
        return [Row(*row) for row in found]

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


def rejected(row: Row, said: str, cost: float = 0.0) -> Statement:
    return outcome_of(row.attempt, "lost" if cost else "rejected", said, cost)


def asked_again(row: Row, said: str, cost: float, counts: bool) -> tuple[Statement, ...]:
    """Its attempt ends, and it waits for the next batch; `counts` whether that was one of its tries."""
    return rejected(row, said, cost), (AGAIN, (int(counts), row.attempt))


def failed(row: Row, reason: str, said: str, raw: str, cost: float) -> tuple[Statement, ...]:
    return rejected(row, said, cost), given_up(row.call, reason, raw)


def rows_that_fit(queue: Sequence[Queued], room: float, most_rows: int, most_bytes: int) -> int:
    """How many from the head of the queue one batch takes: what the file holds and what the money allows."""
    size, money = 0, 0.0
    for count, one in enumerate(queue[:most_rows]):
        size, money = size + one.size + LINE_BYTES, money + one.reserved
        if size > most_bytes or money > room:
            return count
    return min(len(queue), most_rows)
