"""History of a name: each entry says who pointed the name at which digest, and when.

Each entry holds the sha256 of the entry before it. If an entry is rewritten, the next entry no longer matches it,
which `sha256sum` of the files shows. An entry may have a signature, which
qinglan/lineage/trace/name_moves.py makes and verifies.
"""

import hashlib
import re
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple, Self

import orjson
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from qinglan.config import explain_validation_error
from qinglan.errors import ConflictError, DataError
from qinglan.store.manifest import Sha256

TENANT = re.compile(r"[a-z0-9][a-z0-9._-]{0,127}")
NAME = re.compile(f"{TENANT.pattern}/{TENANT.pattern}")


class EntrySignature(NamedTuple):
    key: str
    """Id of the signing key, as the signer claims; it is not verified here."""

    value: str
    """Signature in base64."""


SignEntry = Callable[[bytes], EntrySignature]
"""Function that signs the payload of an entry."""


class HistoryEntry(BaseModel):
    """One move of a name to a digest."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    digest: Sha256
    time: str
    """Time of the move in UTC, in ISO 8601."""
    by: str = Field(pattern=r"^[^\x00-\x1f\x7f]{1,200}$")
    previous: Sha256 | None
    """sha256 of the stored entry before this one; None in the first entry."""
    name: str = ""
    """Name that the entry moves. In an unsigned entry, `name`, `key` and `signature` are empty."""
    key: str = ""
    signature: str = ""

    @field_validator("time")
    @classmethod
    def _in_utc(cls, value: str) -> str:
        if datetime.fromisoformat(value).utcoffset() != timedelta(0):
            raise ValueError("not in UTC")
        return value

    def dump(self) -> bytes:
        without = set() if self.signature else {"name", "key", "signature"}
        return orjson.dumps(self.model_dump(exclude=without)) + b"\n"

    @property
    def payload(self) -> bytes:
        """Return the bytes that are signed: all fields except `key` and `signature`."""
        return orjson.dumps(self.model_dump(exclude={"key", "signature"}))

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.dump()).hexdigest()

    @classmethod
    def parse(cls, data: bytes, where: str) -> Self:
        """Parse an entry.

        Raises a DataError unless the bytes are exactly what `dump` writes, because the next entry holds their sha256.
        """
        try:
            entry = cls.model_validate_json(data)
        except ValidationError as error:
            why = explain_validation_error(error)
            raise DataError(f"{where}: {why}. The history was changed by other means than ours.") from error
        if entry.dump() != data:
            raise DataError(f"{where}: not as it was written. The history was changed by other means than ours.")
        return entry


class NameHistory(NamedTuple):
    """Moves of a name, oldest first. The last move has the digest to which the name points now."""

    name: str
    history: tuple[HistoryEntry, ...]

    @property
    def current(self) -> HistoryEntry:
        return self.history[-1]

    @property
    def digest(self) -> str:
        return self.current.digest


def checked_name(name: str) -> str:
    if not NAME.fullmatch(name):
        raise DataError(
            f"{name!r} is no name: it is tenant/model, in a-z, 0-9, '.', '_' and '-', as in demo/rewriter."
        )
    return name


def check_history(entries: Sequence[HistoryEntry]) -> list[str]:
    """Return a fault for each entry that does not hold the sha256 of the entry before it."""
    faults = []
    for number, entry in enumerate(entries, 1):
        before = entries[number - 2].sha256 if number > 1 else None
        if entry.previous != before:
            named, actual = _short(entry.previous), _short(before)
            faults.append(f"entry {number} says that it follows {named}, not {actual}: what is before it was changed")
    return faults


def next_entry(
    name: str,
    history: Sequence[HistoryEntry],
    digest: str,
    expected: str | None,
    by: str,
    time: str,
    sign: SignEntry | None = None,
) -> HistoryEntry:
    """Build the entry that points a name at `digest`.

    Raises a ConflictError if the name does not point at `expected` now.
    """
    last = history[-1] if history else None
    if (last.digest if last else None) != expected:
        raise ConflictError(conflict_message(name, last, expected))
    try:
        previous, signed_name = last.sha256 if last else None, name if sign else ""
        entry = HistoryEntry(digest=digest, time=time, by=by, previous=previous, name=signed_name)
    except ValidationError as error:
        raise DataError(f"{name}: {explain_validation_error(error)}.") from error
    signature = sign(entry.payload) if sign else EntrySignature("", "")
    return entry.model_copy(update={"key": signature.key, "signature": signature.value})


def conflict_message(name: str, last: HistoryEntry | None, expected: str | None) -> str:
    """Build the message for the slower of two writers, with the faster writer, the time and the present digest."""
    thought = f"expected at {expected}" if expected else "expected to be new"
    if last is None:
        return f"{name}: {thought}, but there is no such name. To make it, expect none."
    return (
        f"{name}: {thought}, but {last.by} pointed it at {last.digest} on {last.time}. "
        "Look at that artifact, and point again from its digest if your artifact should still replace it."
    )


def _short(sha256: str | None) -> str:
    return f"{sha256[:12]}..." if sha256 else "nothing"
