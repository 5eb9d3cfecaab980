"""Cache of retrievals on disk, by the digest of knowledge base and request. A lost cache costs time, but no money."""

import sqlite3
from pathlib import Path

from qinglan.errors import DataError
from qinglan.llm.paid.group_commit import GroupWriter, open_database

VERSION = 1
APPLICATION = 0x51495243  # "QIRC"


class RetrievalCache:
    """Cache of retrievals. Reads run on the event loop; a thread writes several answers at a time."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        database = open_database(path, "NORMAL")
        pragmas = (database.execute(f"PRAGMA {name}") for name in ("application_id", "user_version"))
        if [pragma.fetchone()[0] for pragma in pragmas] != [APPLICATION, VERSION]:
            if database.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
                raise DataError(f"{path}: not a retrieval cache of this release. Delete it, or give another path.")
            database.executescript(
                "BEGIN IMMEDIATE; CREATE TABLE retrievals (key BLOB PRIMARY KEY, answer BLOB NOT NULL); "
                f"PRAGMA application_id = {APPLICATION}; PRAGMA user_version = {VERSION}; COMMIT;"
            )
        self._reader = sqlite3.connect(path, isolation_level=None)
        self._writer = GroupWriter(database, str(path))

    def close(self) -> None:
        self._reader.close()
        self._writer.close()

    def get(self, key: bytes) -> bytes | None:
        row = self._reader.execute("SELECT answer FROM retrievals WHERE key = ?", (key,)).fetchone()
        return row[0] if row else None

    async def put(self, key: bytes, answer: bytes) -> None:
        """Store an answer. Once this returns, get() finds it."""
        await self._writer.write(("INSERT OR REPLACE INTO retrievals (key, answer) VALUES (?, ?)", (key, answer)))
