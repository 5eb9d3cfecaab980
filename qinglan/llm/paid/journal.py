"""The journal of paid calls, which is also their cache: requests, attempts, answers and costs.

Before a request is sent, its attempt is on disk with the money that it may cost. An answer and its usage are
committed together. So a process that is killed at any point loses nothing: an attempt without an outcome counts as
possibly billed, and a stored answer is never requested again.

calls      one per distinct request: its key is the digest of the request and the sample
prompts    one per call: the key of its request without the limit of the answer's length (prompt_key)
attempts   one per request that was sent: sent -> answered | rejected | lost; answered_at is the time of the outcome
entries    one per row of a step that requested the answer, with the artifact that holds the answer
batches    files of requests that `qinglan prepay` sent to the service (see llm/batch/journal.py)

A complete answer is reused under any length limit. A cut answer is reused only under its own limit and lower ones,
under which it would be cut again. If all answers of a call are unusable, the next run sends it again as another
sample (retry_sample): the first answer must stay, since signed statements may name it.
"""

import asyncio
import fcntl
import sqlite3
import time
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from typing import IO, Any, Literal, NamedTuple

import orjson

from qinglan.errors import ConfigError, DataError, OutageError
from qinglan.files.plain_files import open_lock
from qinglan.llm.paid.group_commit import GroupWriter, SqlStatement, open_database
from qinglan.llm.providers.prices import Usage

SCHEMA_VERSION = 3
APPLICATION_ID = 0x51494E47  # "QING": marks a journal among SQLite files

SCHEMA = """
CREATE TABLE calls (
  key TEXT PRIMARY KEY, model TEXT NOT NULL, sample INTEGER NOT NULL, request BLOB NOT NULL,
  state TEXT NOT NULL CHECK (state IN ('sent', 'answered', 'failed')),
  response BLOB, reason TEXT NOT NULL DEFAULT '',
  input INTEGER NOT NULL DEFAULT 0, cached INTEGER NOT NULL DEFAULT 0,
  output INTEGER NOT NULL DEFAULT 0, reasoning INTEGER NOT NULL DEFAULT 0
);
CREATE TABLE attempts (
  id INTEGER PRIMARY KEY, call TEXT NOT NULL, step TEXT NOT NULL, row TEXT NOT NULL, role TEXT NOT NULL,
  sent_at REAL NOT NULL, reserved REAL NOT NULL,
  outcome TEXT NOT NULL CHECK (outcome IN ('sent', 'answered', 'rejected', 'lost')),
  detail TEXT NOT NULL DEFAULT '', cost REAL NOT NULL, answered_at REAL,
  batch INTEGER
);
CREATE TABLE entries (
  step TEXT NOT NULL, row TEXT NOT NULL, role TEXT NOT NULL, call TEXT NOT NULL,
  hits INTEGER NOT NULL, waiting INTEGER NOT NULL DEFAULT 1, artifact TEXT NOT NULL DEFAULT '',
  PRIMARY KEY (step, row, role, call)
) WITHOUT ROWID;
CREATE INDEX attempts_of_call ON attempts (call);
CREATE INDEX attempts_in_batches ON attempts (batch) WHERE outcome = 'sent' AND batch IS NOT NULL;
CREATE TABLE batches (
  id INTEGER PRIMARY KEY, role TEXT NOT NULL, name TEXT NOT NULL UNIQUE, made_at REAL NOT NULL,
  rows INTEGER NOT NULL, factor REAL NOT NULL, file TEXT NOT NULL DEFAULT '', batch TEXT NOT NULL DEFAULT '',
  status TEXT NOT NULL DEFAULT 'made', ended INTEGER NOT NULL DEFAULT 0
);
"""

PROMPTS = """
CREATE TABLE IF NOT EXISTS prompts (
  prompt TEXT NOT NULL, call TEXT NOT NULL, PRIMARY KEY (prompt, call)
) WITHOUT ROWID
"""
COMPLETE_PROMPTS = """
INSERT OR IGNORE INTO prompts (prompt, call) SELECT prompt_key(request, sample), key FROM calls
WHERE (SELECT count(*) FROM prompts) < (SELECT count(*) FROM calls)
AND typeof(key) = 'text' AND typeof(request) = 'blob' AND typeof(sample) = 'integer'
"""
"""Fills the table `prompts` in a journal of an older release, which did not have this table."""

RECOVER = """
UPDATE attempts SET outcome = 'lost', detail = 'the gateway stopped before the answer came'
WHERE outcome = 'sent' AND batch IS NULL
"""
"""Marks open attempts of a killed process as lost. Attempts in a batch are not lost: the service still runs them, and
`qinglan prepay` fetches their answers."""

UPSERT_CALL = """
INSERT INTO calls (key, model, sample, request, state) VALUES (?, ?, ?, ?, 'sent')
ON CONFLICT DO UPDATE SET state = 'sent' WHERE state != 'answered'
"""
INSERT_PROMPT = "INSERT OR IGNORE INTO prompts (prompt, call) VALUES (?, ?)"
INSERT_ATTEMPT = """
INSERT INTO attempts (id, call, step, row, role, sent_at, reserved, outcome, cost, batch)
VALUES (?, ?, ?, ?, ?, ?, ?, 'sent', ?, ?)
"""
UPSERT_ENTRY = """
INSERT INTO entries (step, row, role, call, hits) VALUES (?, ?, ?, ?, ?)
ON CONFLICT DO UPDATE SET hits = hits + excluded.hits, waiting = 1
"""

ANSWERS_TO_PROMPT = """
SELECT key, response, request FROM prompts JOIN calls ON key = call
WHERE prompt = ? AND state = 'answered' ORDER BY sample, key
"""

LIMIT_FIELDS = ("max_tokens", "max_completion_tokens")
"""Request fields that limit the length of the answer."""

RETRY_STEP = 1_000
"""Difference between the sample numbers of a call and of its next retry. Stages number their own samples below it."""

Outcome = Literal["rejected", "lost"]
"""Outcome of an attempt without an answer: a rejected attempt costs nothing, a lost one may have been billed."""


class Call(NamedTuple):
    """A request to a paid model. The same call is paid for only once, even if several rows need it."""

    key: str
    model: str
    sample: int
    request: bytes


class Entry(NamedTuple):
    """The step, row and role that a call is made for."""

    step: str
    row: str
    role: str


def make_call(request: dict[str, Any], sample: int) -> Call:
    """Create the call for a request (model, messages, parameters, response format), as it is sent to the model."""
    # Keys are sorted, so that the same request gives the same key, however its fields were put together.
    body = orjson.dumps(request, option=orjson.OPT_SORT_KEYS)
    return Call(call_key(body, sample), str(request["model"]), sample, body)


def call_key(request: bytes, sample: int) -> str:
    """Compute the key of a call: the digest of the request's bytes, as sent, and of the sample number."""
    return sha256(request + b"\n%d" % sample).hexdigest()


def prompt_key(request: bytes, sample: int) -> str:
    """Compute the key of a request without its length limit. All retries of a sample share this key."""
    try:
        fields = orjson.loads(request)
    except orjson.JSONDecodeError:
        return call_key(request, sample)  # not written by a gateway: only the same bytes have its key
    if isinstance(fields, dict):
        fields = {name: value for name, value in fields.items() if name not in LIMIT_FIELDS}
    return call_key(orjson.dumps(fields, option=orjson.OPT_SORT_KEYS), sample % RETRY_STEP)


def length_limit(request: bytes) -> int:
    """Return the length limit of the answer that a request sets, in tokens; 0 without a limit."""
    try:
        fields = orjson.loads(request)
        return max((int(fields[name]) for name in LIMIT_FIELDS if name in fields), default=0)
    except (orjson.JSONDecodeError, TypeError, ValueError):
        return 0  # not written by a gateway


def retry_sample(sample: int, retry: int) -> int:
    """Return the sample number of a call's retry with the number `retry`; retry 0 is the call itself."""
    return sample + retry * RETRY_STEP


class JournalledAnswer(NamedTuple):
    """A received answer, and the key of its call."""

    call: str
    response: bytes
    limit: int
    """Length limit of the answer in tokens; 0 if its request has no limit."""


class Journal:
    """Writes a journal file, as its only writer. A second writer, in this process or another, gets a ConfigError."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._lock = _lock(path)
        try:
            database = open_database(path, "FULL")
            _prepare(database, path)
        except BaseException:
            self._lock.close()
            raise
        self.path = path
        # Attempts are numbered here and not by SQLite, because a number is needed before its write is committed.
        self._next_attempt: int = database.execute("SELECT coalesce(max(id), 0) + 1 FROM attempts").fetchone()[0]
        self._reader = sqlite3.connect(path, isolation_level=None)
        self._writer = GroupWriter(database, str(path))

    def close(self) -> None:
        self._reader.close()
        self._writer.close()
        self._lock.close()

    def read(self, query: str, values: Sequence[Any] = ()) -> list[Any]:
        return self._reader.execute(query, values).fetchall()

    def write(self, *statements: SqlStatement) -> "asyncio.Future[int]":
        """Commit statements in one transaction, after all earlier writes."""
        return self._writer.write(*statements)

    @property
    def failure(self) -> OutageError | None:
        """Error that stopped all further writes; None if no write has failed."""
        return self._writer.failure

    def numbers(self, count: int) -> int:
        """Reserve `count` consecutive numbers for new attempts and return the first."""
        first, self._next_attempt = self._next_attempt, self._next_attempt + count
        return first

    def spent(self) -> float:
        """Return the total cost of all attempts. An attempt without an outcome counts with its worst cost."""
        return float(self.read("SELECT coalesce(sum(cost), 0) FROM attempts")[0][0])

    def answer(self, key: str) -> bytes | None:
        """Return the received answer to a call; None if the call has no answer."""
        rows = self.read("SELECT response FROM calls WHERE key = ? AND state = 'answered'", (key,))
        return bytes(rows[0][0]) if rows else None

    def answers_to_prompt(self, prompt: str) -> list[JournalledAnswer]:
        """Return all answers to a prompt (see prompt_key), under any length limit; answers of retries come last."""
        rows = self.read(ANSWERS_TO_PROMPT, (prompt,))
        return [JournalledAnswer(key, bytes(answer), length_limit(request)) for key, answer, request in rows]

    async def sent(self, call: Call, entry: Entry, reserved: float) -> int:
        """Commit an attempt before its request is sent, and return its number."""
        number = self.numbers(1)
        await self.write((UPSERT_ENTRY, (*entry, call.key, 0)), *sent_statements(number, call, entry, reserved))
        return number

    async def answered(
        self, attempt: int, key: str, response: bytes, usage: Usage, cost: float, reason: str = ""
    ) -> None:
        """Commit the answer, its usage and its cost in one transaction. `reason` says why the answer is unusable, if
        it is."""
        await self.write(*record_answer_statements(attempt, key, response, usage, cost, reason))

    async def unanswered(self, attempt: int, outcome: Outcome, detail: str, cost: float) -> None:
        await self.write(end_attempt_statement(attempt, outcome, detail, cost))

    async def failed(self, key: str, reason: str, raw: str) -> None:
        """Mark the call as failed. The next request for it sends it again."""
        await self.write(fail_call_statement(key, reason, raw))

    def hit(self, key: str, entry: Entry) -> None:
        """Count that a row used a stored answer. The commit is not awaited, because a lost count loses no money."""
        self.write((UPSERT_ENTRY, (*entry, key, 1)))

    async def settled(self) -> None:
        """Wait until all writes so far are committed, including those of `hit`, so that a reader sees them."""
        await self.write(("UPDATE entries SET hits = hits WHERE 0", ()))

    def exported(self, step: str, artifact: str) -> "asyncio.Future[int]":
        """Record `artifact` for the step's answers that were not exported before. Repeating the call changes
        nothing."""
        return self.write(
            ("UPDATE entries SET artifact = ?, waiting = 0 WHERE step = ? AND waiting = 1", (artifact, step))
        )


def sent_statements(
    attempt: int, call: Call, entry: Entry, reserved: float, batch: int | None = None
) -> tuple[SqlStatement, ...]:
    return (
        (UPSERT_CALL, call),
        (INSERT_PROMPT, (prompt_key(call.request, call.sample), call.key)),
        (INSERT_ATTEMPT, (attempt, call.key, *entry, time.time(), reserved, reserved, batch)),
    )


def record_answer_statements(
    attempt: int, key: str, response: bytes, usage: Usage, cost: float, reason: str = ""
) -> tuple[SqlStatement, ...]:
    return (
        (
            "UPDATE calls SET state = 'answered', response = ?, reason = ?, "
            "input = ?, cached = ?, output = ?, reasoning = ? WHERE key = ? AND state != 'answered'",
            (response, reason, *usage, key),
        ),
        end_attempt_statement(attempt, "answered", "", cost),
    )


def fail_call_statement(key: str, reason: str, raw: str) -> SqlStatement:
    """Build the SQL statement that marks a call as failed. A call with an answer is not changed, since the answer was
    paid for."""
    return (
        "UPDATE calls SET state = 'failed', reason = ?, response = ? WHERE key = ? AND state != 'answered'",
        (reason, raw.encode(), key),
    )


def end_attempt_statement(attempt: int, outcome: str, detail: str, cost: float) -> SqlStatement:
    return (
        "UPDATE attempts SET outcome = ?, detail = ?, cost = ?, answered_at = ? WHERE id = ?",
        (outcome, detail, cost, time.time(), attempt),
    )


def _lock(path: Path) -> IO[bytes]:
    """Lock the journal until `close` or the end of the process. The lock is on a separate file beside the journal,
    because SQLite locks the journal's file itself."""
    # flock and not SQLite: SQLite locks a file only while it writes, and a killed process leaves no flock behind.
    lock = open_lock(path.with_name(f"{path.name}.lock"))
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        lock.close()
        raise ConfigError(
            f"{path}: another gateway owns this journal, or `qinglan prepay` does. A run has one gateway: use its "
            "address, or stop it first; wait for a prepayment, or stop it: it can be resumed."
        ) from error
    return lock


def read_version(database: sqlite3.Connection) -> tuple[int, int]:
    """Read the numbers by which a database is known as a journal: APPLICATION_ID and SCHEMA_VERSION."""
    names = ("application_id", "user_version")
    application, version = (int(database.execute(f"PRAGMA {name}").fetchone()[0]) for name in names)
    return application, version


def _prepare(database: sqlite3.Connection, path: Path) -> None:
    """Create the tables if the file is new. In an existing journal, mark attempts that a killed owner left open as
    lost."""
    application, version = read_version(database)
    if application == APPLICATION_ID and version == SCHEMA_VERSION:
        # The lock is held, so no living process has these attempts under way.
        database.execute(RECOVER)
        database.execute(PROMPTS)
        database.create_function("prompt_key", 2, prompt_key, deterministic=True)
        database.execute(COMPLETE_PROMPTS)
        return
    if application == APPLICATION_ID:
        raise DataError(
            f"{path}: a journal of version {version}; this release writes version {SCHEMA_VERSION}. "
            "Use the release that wrote it, or give a new path."
        )
    if database.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
        raise DataError(f"{path}: a database, but no journal. Give another path.")
    # One transaction: a process killed here leaves an empty file, and never a journal without its tables.
    database.executescript(
        f"BEGIN IMMEDIATE; {SCHEMA} {PROMPTS}; PRAGMA application_id = {APPLICATION_ID}; PRAGMA user_version = "
        f"{SCHEMA_VERSION}; COMMIT;"
    )
