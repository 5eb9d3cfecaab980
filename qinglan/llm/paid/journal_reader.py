"""Reads a journal, while its gateway runs or long after: for reports, digests and exports.

report = read_report(Path("runs/demo/journal.sqlite"))
"""

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from qinglan.errors import DataError
from qinglan.llm.paid.journal import APPLICATION_ID, SCHEMA_VERSION, call_key, read_version
from qinglan.terminal import visible

CALLS = """
SELECT count(*) calls, coalesce(sum(state = 'answered'), 0) answered, coalesce(sum(state = 'failed'), 0) failed,
  coalesce(sum(input), 0) input_tokens, coalesce(sum(cached), 0) cached_tokens,
  coalesce(sum(state = 'answered' AND input = 0), 0) uncounted,
  coalesce(sum(output), 0) output_tokens, coalesce(sum(reasoning), 0) reasoning_tokens FROM calls
"""
ATTEMPTS = "SELECT count(*) attempts, coalesce(sum(cost), 0) cost FROM attempts"
LOST_ATTEMPTS = """
SELECT count(*) lost_attempts FROM attempts JOIN calls ON key = call
WHERE state = 'failed' OR (state = 'answered' AND calls.reason != '')
"""
"""Counts the attempts of calls that have no usable answer. The next run sends these calls again."""

BY_STEP = """
SELECT step, role, sum(attempts) attempts, sum(answered) answered, sum(hits) hits, sum(cost) cost FROM (
  SELECT step, role, count(*) attempts, sum(outcome = 'answered') answered, 0 hits, sum(cost) cost
    FROM attempts GROUP BY step, role
  UNION ALL SELECT step, role, 0, 0, sum(hits), 0 FROM entries GROUP BY step, role
) GROUP BY step, role ORDER BY step, role
"""
BY_MODEL = """
SELECT model, count(*) answers, sum((SELECT coalesce(sum(cost), 0) FROM attempts WHERE call = key)) cost
FROM calls WHERE state = 'answered' GROUP BY model ORDER BY model
"""
POSSIBLY_BILLED = """
SELECT DISTINCT step, row FROM attempts WHERE outcome = 'lost' ORDER BY step, row
"""
EXPORTS = """
SELECT step, artifact, count(*) answers FROM entries WHERE artifact != '' GROUP BY step, artifact
"""
OPEN_BATCHES = """
SELECT role, name, batch, status, rows, made_at FROM batches WHERE NOT ended ORDER BY id
"""
PAID = """
SELECT DISTINCT key, role, calls.model, response, (SELECT sum(cost) FROM attempts WHERE attempts.call = key) cost
FROM entries JOIN calls ON entries.call = calls.key WHERE step = ? AND state = 'answered' ORDER BY key, role
"""

ANSWERS = """
SELECT key, model, sample, request, response,
  (SELECT sum(cost) FROM attempts WHERE call = key HAVING count(*) = 1) cost,
  EXISTS (SELECT 1 FROM attempts WHERE call = key AND outcome = 'answered') sent
FROM calls WHERE state = 'answered'
"""

ATTEMPTS_OF = """
SELECT row, outcome, cost, CASE WHEN batch IS NULL THEN answered_at - sent_at END seconds, request
FROM attempts JOIN calls ON key = call WHERE step = ? AND role = ? ORDER BY id
"""


class JournalAnswer(NamedTuple):
    """An answered call, as an audit reads it."""

    call: str
    """Key of the call, which is a digest of its request."""

    digest: str
    """Digest of the answer; "" if there is a fault."""

    model: str
    cost: float | None
    """Cost of the call; None if it was sent more than once, since a batch that ends later may change the cost."""

    sent: bool
    """True if an attempt of the call was answered."""

    fault: str
    """Reason why the gateway cannot have written the journal's row of this call; "" if there is no fault."""


class Attempt(NamedTuple):
    """One request that was sent: its row, outcome, cost and duration."""

    row: str
    outcome: str
    cost: float
    seconds: float | None
    """Seconds from the journal's commit before sending until the outcome; None without an outcome, and for a row of a
    batch."""

    request: bytes
    """Request as it was sent, in JSON."""


def read_attempts(path: Path, step: str, role: str) -> list[Attempt]:
    """Read every request that a step sent to a role's model."""
    with _reading(path) as database:
        return [Attempt(*row) for row in database.execute(ATTEMPTS_OF, (step, role))]


def read_report(path: Path) -> dict[str, Any]:
    """Summarize a journal: calls, reused answers, tokens and money, in all and by step, and rows that may be billed
    twice."""
    with _reading(path) as database:
        report: dict[str, Any] = {}
        for query in (CALLS, ATTEMPTS, LOST_ATTEMPTS):
            report |= dict(database.execute(query).fetchone())
        lists = {"by_step": BY_STEP, "exports": EXPORTS, "batches": OPEN_BATCHES}
        report |= {name: [dict(row) for row in database.execute(query)] for name, query in lists.items()}
        report["possibly_billed"] = [f"{step}/{row}" for step, row in database.execute(POSSIBLY_BILLED)]
    hits = sum(row["hits"] for row in report["by_step"])
    total = hits + report["answered"]
    return {**report, "hits": hits, "hit_rate": hits / total if total else 0.0, "digest": journal_digest(path)}


class ModelAnswers(NamedTuple):
    """Number of a model's answers in a journal, and the cost that was booked for them."""

    model: str
    answers: int
    cost: float


def read_answers_by_model(path: Path) -> list[ModelAnswers]:
    with _reading(path) as database:
        return [ModelAnswers(*row) for row in database.execute(BY_MODEL)]


def journal_digest(path: Path) -> str:
    """Compute the digest of all answered calls of a journal, over key and answer. The order of the answers in time
    does not matter."""
    digest = sha256()
    with _reading(path) as database:
        for row in database.execute("SELECT key, response FROM calls WHERE state = 'answered' ORDER BY key"):
            digest.update(row["key"].encode() + sha256(row["response"]).digest())
    return digest.hexdigest()


def paid_answers_jsonl(path: Path, step: str) -> bytes:
    """List the answers that a step got, one JSON line each: digests of request and answer, and the cost."""
    lines = []
    with _reading(path) as database:
        for row in database.execute(PAID, (step,)):
            answer = {"answer": sha256(row["response"]).hexdigest(), "cost": row["cost"]}
            line = {"call": row["key"], "role": row["role"], "model": row["model"]} | answer
            lines.append(orjson.dumps(line) + b"\n")
    return b"".join(lines)


def read_answers(path: Path) -> Iterator[JournalAnswer]:
    """Yield every answered call. Its `fault` is set if the gateway cannot have written the call's row."""
    with _reading(path) as database:
        for row in database.execute(ANSWERS):
            fault = _row_fault(row)
            digest = "" if fault else sha256(row["response"]).hexdigest()
            yield JournalAnswer(str(row["key"]), digest, str(row["model"]), row["cost"], bool(row["sent"]), fault)


def _row_fault(row: sqlite3.Row) -> str:
    """Explain why the gateway cannot have written this row; "" if it can. Types are checked too, since SQLite stores
    any type."""
    key, request, response, sample = row["key"], row["request"], row["response"], row["sample"]
    if not (isinstance(key, str) and isinstance(request, bytes) and isinstance(response, bytes)):
        return "the journal holds text or nothing where the bytes of a request or an answer belong"
    if not isinstance(sample, int) or call_key(request, sample) != key:
        return "the journal's request is not the one that its key is the digest of"
    try:
        named = orjson.loads(request)["model"]
    except (orjson.JSONDecodeError, KeyError, TypeError):
        return "the journal's request names no model"
    return "" if named == row["model"] else f"its request is to {visible(str(named)[:80])}, the journal names another"


@contextmanager
def _reading(path: Path) -> Iterator[sqlite3.Connection]:
    """Open a journal for reading: one consistent view that does not block the journal's writer."""
    if not path.is_file():
        raise DataError(f"{path}: no journal there. A run writes it; see that the path is right.")
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        database.row_factory = sqlite3.Row
        try:
            database.execute("PRAGMA query_only=1")
            version = read_version(database)
        except sqlite3.DatabaseError as error:
            raise DataError(f"{path}: cannot be read ({error}).") from error
        if version != (APPLICATION_ID, SCHEMA_VERSION):
            raise DataError(
                f"{path}: no journal of version {SCHEMA_VERSION}. Read it with the release that wrote it."
            )
        # In WAL mode, all reads of a transaction see the state at its first read.
        database.execute("BEGIN")
        yield database
