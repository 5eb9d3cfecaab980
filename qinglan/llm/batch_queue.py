"""What waits for the next batch: queued on disk by whoever wants it, and taken from the head.

A gateway that starts forgets it: stages say anew what they want.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import orjson

from qinglan.llm.batch_api import REQUEST_LINE_OVERHEAD
from qinglan.llm.group_commit import SqlStatement
from qinglan.llm.journal import IN_OPEN_BATCH, UPSERT_ENTRY, Call, Entry, Journal

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
REQUEUE = """
INSERT OR IGNORE INTO queue (call, model, sample, request, step, row, role, reserved, tries)
SELECT key, model, sample, request, step, row, role, reserved, tries + ?
FROM attempts JOIN calls ON key = call WHERE id = ? AND state != 'answered'
"""
DELETE_ALREADY_PAID = """
DELETE FROM queue WHERE role = ? AND place <= ? AND (
  EXISTS (SELECT 1 FROM calls WHERE key = queue.call AND state = 'answered')
  OR EXISTS (SELECT 1 FROM attempts WHERE call = queue.call AND outcome = 'sent')
)
"""
"""Somebody else has paid for it meanwhile, or is about to."""

END_OF_QUEUE = 1 << 62
"""A place behind the whole queue."""


class DeferredCall(NamedTuple):
    """One ask that can wait, with the most that it can cost in a batch."""

    call: Call
    entry: Entry
    reserved: float

    def values(self) -> dict[str, object]:
        key, model, sample, request = self.call
        return {"call": key, "model": model, "sample": sample, "request": request, "reserved": self.reserved,
                **self.entry._asdict()}  # fmt: skip


class QueueItem(NamedTuple):
    """One place of the queue."""

    place: int
    size: int
    reserved: float


class BatchQueue:
    """The journal's pages on what waits."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal

    async def want(self, wanted: Iterable[DeferredCall], ahead: bool) -> None:
        """Into the queue what nobody has answered, sent or queued. `ahead`: the rows will ask for it later."""
        statements: list[SqlStatement] = []
        for one in wanted:
            statements.append((QUEUE, one.values()))
            statements.append((AHEAD, one.values()) if ahead else (UPSERT_ENTRY, (*one.entry, one.call.key, 0)))
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
        await self._journal.write((UPSERT_ENTRY, (*entry, key, 0)))

    def left(self, step: str, roles: Iterable[str]) -> dict[str, int]:
        """Asks of a step to these roles that wait, and those that are in batches under way."""
        given = (step, orjson.dumps(list(roles)).decode())
        where = "step = ? AND role IN (SELECT value FROM json_each(?))"
        waiting = self._journal.read(f"SELECT count(*) FROM queue WHERE {where}", given)[0][0]
        sent = self._journal.read(f"SELECT count(*) FROM attempts WHERE {IN_OPEN_BATCH} AND {where}", given)[0][0]
        return {"waiting": int(waiting), "sent": int(sent)}

    def role_of(self, key: str) -> str | None:
        """Under which role a call is queued or in a batch: the role that asked first, whoever asks since."""
        sent = f"SELECT role FROM attempts WHERE {IN_OPEN_BATCH} AND call = ?"
        query = f"SELECT role FROM queue WHERE call = ? UNION ALL {sent}"
        found = self._journal.read(query, (key, key))
        return str(found[0][0]) if found else None

    def queued_under(self, keys: Iterable[str]) -> set[str]:
        """The roles whose queues hold some of these calls."""
        listed = orjson.dumps(list(keys)).decode()
        query = "SELECT DISTINCT role FROM queue WHERE call IN (SELECT value FROM json_each(?))"
        return {str(row[0]) for row in self._journal.read(query, (listed,))}

    def waiting(self, role: str, most: int) -> int:
        """How long a role's queue is, counted up to `most`."""
        query = "SELECT count(*) FROM (SELECT 1 FROM queue WHERE role = ? LIMIT ?)"
        return int(self._journal.read(query, (role, most))[0][0])

    async def queued(self, role: str, most: int) -> list[QueueItem]:
        """The head of a role's queue, without what has been answered since."""
        await self._journal.write((DELETE_ALREADY_PAID, (role, END_OF_QUEUE)))
        found = self._journal.read(
            "SELECT place, length(request), reserved FROM queue WHERE role = ? ORDER BY place LIMIT ?", (role, most)
        )
        return [QueueItem(*row) for row in found]


def requeue_statement(attempt: int, counts: bool) -> SqlStatement:
    """Its call waits for the next batch; `counts` whether this one was a try."""
    return REQUEUE, (int(counts), attempt)


def rows_that_fit(queue: Sequence[QueueItem], room: float, most_rows: int, most_bytes: int) -> int:
    """How many from the head of the queue one batch takes: what the file holds and what the money allows."""
    size, money = 0, 0.0
    for count, one in enumerate(queue[:most_rows]):
        size, money = size + one.size + REQUEST_LINE_OVERHEAD, money + one.reserved
        if size > most_bytes or money > room:
            return count
    return min(len(queue), most_rows)
