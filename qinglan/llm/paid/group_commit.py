"""Group commit for SQLite: one thread writes, and writes that arrive during a commit share the next transaction."""

import asyncio
import queue
import sqlite3
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

from qinglan.errors import DataError, OutageError
from qinglan.files.files import make_private

LARGEST_GROUP = 500

SqlStatement = tuple[str, Sequence[Any] | Mapping[str, Any]]


class _Write(NamedTuple):
    statements: tuple[SqlStatement, ...]
    done: "asyncio.Future[int]"


def open_database(path: Path, synchronous: Literal["FULL", "NORMAL"]) -> sqlite3.Connection:
    """Open a SQLite connection for writing, in WAL mode. Callers begin transactions themselves. Only the file's owner
    can read the file."""
    try:
        make_private(path)  # SQLite gives the files beside it the same mode
        database = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        database.execute("PRAGMA busy_timeout=10000")
        # WAL lets readers see a consistent view while one connection writes: https://www.sqlite.org/wal.html
        # With synchronous=NORMAL a commit may be lost after a power cut, with FULL it is on the disk.
        database.execute("PRAGMA journal_mode=WAL")
        database.execute(f"PRAGMA synchronous={synchronous}")
    except (sqlite3.DatabaseError, OSError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise DataError(
            f"{path}: cannot be opened as a database ({why}). Move it away or give another path."
        ) from error
    return database


class GroupWriter:
    """Writes to a database in one thread, in the order of the calls. It owns the connection until `close`."""

    def __init__(self, database: sqlite3.Connection, name: str) -> None:
        self._database = database
        self._name = name
        self._loop = asyncio.get_running_loop()
        self._queue: queue.SimpleQueue[_Write | None] = queue.SimpleQueue()
        self.failure: OutageError | None = None
        self._thread = threading.Thread(target=self._run, name=f"writer of {name}", daemon=True)
        self._thread.start()

    def write(self, *statements: SqlStatement) -> "asyncio.Future[int]":
        """Queue a write, and return a future. After the commit it holds the number of rows that the last statement
        changed.

        After a failed commit nothing more is written: every later call raises the failure.
        """
        if self.failure:
            raise self.failure
        done = self._loop.create_future()
        done.add_done_callback(_retrieved)
        self._queue.put(_Write(statements, done))
        return done

    def close(self) -> None:
        # The thread commits all writes that were queued before the end mark; only then may the connection be closed.
        self._queue.put(None)
        self._thread.join()
        self._database.close()

    def _run(self) -> None:
        while (first := self._queue.get()) is not None:
            group, last = self._group(first)
            outcome: list[int] | OutageError
            try:
                outcome = self._commit(group)
            except Exception as error:  # any error goes to the waiting callers; the thread must not die
                outcome = self.failure = OutageError(
                    f"{self._name}: cannot be written ({error}). Mend the disk, then run again: "
                    "answers that were under way count as possibly billed."
                )
            # Futures belong to the loop of the callers: only its thread may resolve them.
            self._loop.call_soon_threadsafe(_resolve, group, outcome)
            if last:
                return

    def _group(self, first: _Write) -> tuple[list[_Write], bool]:
        """Collect the first write and the writes queued behind it. The bool is True if the end mark was reached."""
        group = [first]
        while len(group) < LARGEST_GROUP:
            try:
                item = self._queue.get_nowait()
            except queue.Empty:
                break
            if item is None:
                return group, True
            group.append(item)
        return group, False

    def _commit(self, group: list[_Write]) -> list[int]:
        """Write the whole group in one transaction. If it fails, nothing of the group is written."""
        self._database.execute("BEGIN IMMEDIATE")
        try:
            changed = [
                [self._database.execute(*statement).rowcount for statement in write.statements][-1] for write in group
            ]
            self._database.execute("COMMIT")
        except BaseException:
            # After an error such as a full disk SQLite may have rolled back by itself.
            if self._database.in_transaction:
                self._database.execute("ROLLBACK")
            raise
        return changed


def _resolve(group: list[_Write], outcome: list[int] | OutageError) -> None:
    for number, write in enumerate(group):
        if write.done.done():
            continue
        if isinstance(outcome, OutageError):
            write.done.set_exception(outcome)
        else:
            write.done.set_result(outcome[number])


def _retrieved(done: "asyncio.Future[int]") -> None:
    """Read a failed write's exception. Otherwise asyncio would log a warning if no code awaits the write."""
    if not done.cancelled():
        done.exception()
