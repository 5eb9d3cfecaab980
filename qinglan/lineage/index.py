"""Statements below folders, kept in SQLite to be asked from the root up: what descends from this digest?

with open_index([Path("runs")], store="runs/store") as index:
    hits = which_models(digest, index, policy)

A file is read again where its size or time has changed. Nothing is believed for being found: each hit says whether
its statement's signature counts.
"""

import hashlib
import os
import re
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from qinglan.errors import DataError, QinglanError
from qinglan.files import cache_folder
from qinglan.lineage.claims import judged
from qinglan.lineage.dsse import ENDING, Envelope, open_envelope
from qinglan.lineage.graph import RELEASER
from qinglan.lineage.keys import Role
from qinglan.lineage.looking import many_objects
from qinglan.lineage.statement import Statement, from_payload
from qinglan.lineage.trust import TrustPolicy

VERSION = 2
SCHEMA = """
CREATE TABLE IF NOT EXISTS files (path TEXT PRIMARY KEY, size INTEGER, time INTEGER, statement INTEGER);
CREATE INDEX IF NOT EXISTS of_statement ON files (statement);
CREATE TABLE IF NOT EXISTS statements (id INTEGER PRIMARY KEY, sha TEXT UNIQUE, stage TEXT, ended TEXT, name TEXT);
CREATE TABLE IF NOT EXISTS things (id INTEGER PRIMARY KEY, digest TEXT UNIQUE);
CREATE TABLE IF NOT EXISTS made (
  statement INTEGER, thing INTEGER, name TEXT, place INTEGER, PRIMARY KEY (statement, thing, name)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS first_made ON made (place) WHERE place < 2;
CREATE TABLE IF NOT EXISTS used (thing INTEGER, statement INTEGER, PRIMARY KEY (thing, statement)) WITHOUT ROWID;
CREATE TEMP TABLE descent (statement INTEGER PRIMARY KEY);
"""
DESCENT = """
INSERT INTO descent WITH RECURSIVE down(statement) AS (
  SELECT used.statement FROM things JOIN used ON used.thing = things.id WHERE digest = ?
  UNION SELECT used.statement FROM down
    JOIN made ON made.statement = down.statement JOIN used ON used.thing = made.thing
) SELECT statement FROM down
"""
HITS = """
SELECT things.digest, made.name, stage, ended, statements.name,
  (SELECT min(path) FROM files WHERE files.statement = statements.id)
FROM made JOIN statements ON statements.id = made.statement JOIN things ON things.id = made.thing
"""
ORDER = "ORDER BY place, ended DESC, made.name, made.thing LIMIT ?"
FIRST = f"{HITS} WHERE place < 2 AND made.statement IN descent {ORDER}"
OTHERS = f"""{HITS} WHERE place >= 2 AND made.statement IN (
  SELECT id FROM descent JOIN statements ON id = descent.statement ORDER BY ended DESC, id LIMIT ?
) {ORDER}"""
TOTAL = "SELECT count(*) FROM descent JOIN made ON made.statement = descent.statement"
BEGINS = "SELECT digest FROM things WHERE digest GLOB ? LIMIT 2"
SHORT = re.compile(r"[0-9a-f]{8,63}")
SHOWN = 200


class Hit(NamedTuple):
    """Something that descends from what was asked for."""

    what: str
    digest: str
    stage: str
    ended: str
    names: tuple[str, ...]
    """Of a release: the name it was signed for; with (now) where that name points to it in the store."""

    where: str
    counts: str
    """"" where its statement's signature counts; else why not."""

    total: int
    """How many there are, shown or not."""


class Index(NamedTuple):
    database: sqlite3.Connection
    pointers: dict[str, list[str]]
    """Names of the store by the digest that they point to."""


@contextmanager
def open_index(roots: Sequence[Path], store: str = "", folder: Path | None = None) -> Iterator[Index]:
    """The index of these folders and of a store in one, brought up to date."""
    if store and "://" not in store:
        roots = [*roots, Path(store)]
    whole = sorted({str(root.resolve()) for root in roots if root.exists()})
    name = hashlib.sha256("\n".join(whole).encode()).hexdigest()[:16]
    place = (folder or cache_folder("lineage")) / f"{name}-{VERSION}.sqlite"
    place.parent.mkdir(parents=True, exist_ok=True)
    with closing(sqlite3.connect(place, timeout=30)) as database:
        database.executescript(f"PRAGMA journal_mode=WAL; PRAGMA synchronous=OFF;{SCHEMA}")
        update(database, _outermost(whole))
        yield Index(database, _pointers(store))


def update(database: sqlite3.Connection, roots: Iterable[str]) -> tuple[int, int]:
    """How many files were read, and how many are gone."""
    known = {path: (size, time) for path, size, time in database.execute("SELECT path, size, time FROM files")}
    found = dict(statement_files(roots))
    changed = [path for path, state in found.items() if known.get(path) != state]
    gone = [path for path in known if path not in found]
    things: dict[str, int] = {}
    with database, many_objects():
        database.executemany("DELETE FROM files WHERE path = ?", ((path,) for path in gone))
        for path in changed:
            _enter(database, path, found[path], things)
        if gone or changed:
            _forget(database)
    return len(changed), len(gone)


def statement_files(roots: Iterable[str]) -> Iterator[tuple[str, tuple[int, int]]]:
    """Each statement's file with its size and time; links are not followed."""
    waiting = list(roots)
    while waiting:
        with os.scandir(waiting.pop()) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(entry.path)
                elif entry.name.endswith(ENDING) and entry.is_file(follow_symlinks=False):
                    state = entry.stat(follow_symlinks=False)
                    yield entry.path, (state.st_size, state.st_mtime_ns)


def which_models(digest: str, index: Index, policy: TrustPolicy, most: int = SHOWN) -> list[Hit]:
    """What descends from it: releases first, then models, then the rest, the newest first."""
    database = index.database
    with database:
        database.execute("DELETE FROM descent")
        database.execute(DESCENT, (_whole(digest, index),))
    [(total,)] = database.execute(TOTAL)
    rows = database.execute(FIRST, (most,)).fetchall()
    rows += database.execute(OTHERS, (most, most - len(rows))).fetchall()
    return [_hit(index, policy, row, total) for row in rows]


def _whole(digest: str, index: Index) -> str:
    """A digest of which the first characters are given."""
    if not SHORT.fullmatch(digest):
        return digest
    found = [row[0] for row in index.database.execute(BEGINS, (f"{digest}*",))]
    if len(found) > 1:
        raise DataError(f"{digest}: more than one digest begins so. Give more of it.")
    return str(found[0]) if found else digest


def _hit(index: Index, policy: TrustPolicy, row: Sequence[Any], total: int) -> Hit:
    digest, name, stage, ended, model, path = row
    release = Path(path).parent.name if stage == RELEASER else ""  # a store keeps it under its digest
    names = [f"{one} (now)" for one in index.pointers.get(release, ())] or ([model] if model else [])
    what = f"release, {name}" if stage == RELEASER else name
    return Hit(what, digest, stage, ended, tuple(names), path, _fault(path, policy), total)


def _place(stage: str, name: str) -> int:
    """What people look for first: a release's model, a model, anything else, a release's other files."""
    if stage == RELEASER:
        return 0 if name == "model" else 3
    return 1 if "model" in name else 2


def _fault(path: str, policy: TrustPolicy) -> str:
    """Why the signature does not count."""
    try:
        envelope = open_envelope(Path(path).read_bytes(), path)
        statement = from_payload(envelope.payload, path)
        role: Role = "releaser" if statement.stage == RELEASER else "builder"
        state, why, _ = judged(envelope, policy, role, _tenant(statement, envelope, policy), statement.at)
    except (DataError, OSError) as error:
        return str(error)
    return "" if state == "attested" else why


def _tenant(statement: Statement, envelope: Envelope, policy: TrustPolicy) -> str:
    """Whom it says it is for; where it names nobody, somebody for whom its key may sign."""
    config = statement.config if isinstance(statement.config, dict) else {}
    keys = (policy.keys[one.key] for one in envelope.signatures if one.key in policy.keys)
    mine = next((tenant for key in keys for tenant in key.tenants), "")
    return str(config.get("name", "")).partition("/")[0] or str(config.get("tenant_id", "")) or mine


def _enter(database: sqlite3.Connection, path: str, state: tuple[int, int], things: dict[str, int]) -> None:
    """A file, and its statement where no other file has had it; what is none is known as that."""
    number = None
    try:
        sealed = Path(path).read_bytes()
        number = _statement(database, sealed, path, things)
    except (DataError, OSError):
        pass
    database.execute("INSERT OR REPLACE INTO files VALUES (?, ?, ?, ?)", (path, *state, number))


def _statement(database: sqlite3.Connection, sealed: bytes, path: str, things: dict[str, int]) -> int:
    sha = hashlib.sha256(sealed).hexdigest()
    if row := database.execute("SELECT id FROM statements WHERE sha = ?", (sha,)).fetchone():
        return int(row[0])
    one = from_payload(open_envelope(sealed, path).payload, path)
    name = str(one.config.get("name", "")) if one.stage == RELEASER and isinstance(one.config, dict) else ""
    row = (sha, one.stage, one.ended, name)
    number = _new_id(database.execute("INSERT INTO statements (sha, stage, ended, name) VALUES (?, ?, ?, ?)", row))
    used = {part.digest for part in one.used}
    carried = [part for part in one.made if one.stage == RELEASER or part.digest not in used]
    database.executemany(
        "INSERT OR IGNORE INTO made VALUES (?, ?, ?, ?)",
        [
            (number, _thing(database, part.digest, things), part.name, _place(one.stage, part.name))
            for part in carried
            if "/" not in part.name
        ],
    )
    database.executemany(
        "INSERT OR IGNORE INTO used VALUES (?, ?)", [(_thing(database, one, things), number) for one in sorted(used)]
    )
    return number


def _thing(database: sqlite3.Connection, digest: str, known: dict[str, int]) -> int:
    if digest not in known:
        row = database.execute("SELECT id FROM things WHERE digest = ?", (digest,)).fetchone()
        insert = "INSERT INTO things (digest) VALUES (?)"
        known[digest] = int(row[0]) if row else _new_id(database.execute(insert, (digest,)))
    return known[digest]


def _new_id(cursor: sqlite3.Cursor) -> int:
    assert cursor.lastrowid is not None
    return cursor.lastrowid


def _forget(database: sqlite3.Connection) -> None:
    """Statements that no file has any more."""
    gone = "SELECT id FROM statements WHERE id NOT IN (SELECT statement FROM files WHERE statement IS NOT NULL)"
    for table in ("made", "used"):
        database.execute(f"DELETE FROM {table} WHERE statement IN ({gone})")
    database.execute(f"DELETE FROM statements WHERE id IN ({gone})")


def _outermost(roots: Sequence[str]) -> list[str]:
    """Without folders that lie in another of them."""
    return [one for one in roots if not any(Path(root) in Path(one).parents for root in roots)]


def _pointers(store: str) -> dict[str, list[str]]:
    """Where a store's names point; nothing where there is no store that could be asked."""
    from qinglan.store import open_store

    if not store or ("://" not in store and not Path(store).is_dir()):
        return {}
    shelf = open_store(store)
    found: dict[str, list[str]] = {}
    for name in shelf.names():
        try:
            if entry := shelf.name(name):
                found.setdefault(str(entry.digest), []).append(name)
        except QinglanError:
            continue
    return found
