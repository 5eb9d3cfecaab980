"""Store of artifacts by digest, and of the names that point at them; the same in a folder and in S3."""

import hashlib
import re
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path

import orjson

from qinglan.documents import parse_json_mapping
from qinglan.errors import ConflictError, DataError
from qinglan.store.backend import MIN_PART_SIZE, SourceFile, StorageBackend
from qinglan.store.download import pull_files
from qinglan.store.manifest import Manifest, build_manifest, differences, files_to_push, read_sources
from qinglan.store.name_history import (
    NAME,
    TENANT,
    HistoryEntry,
    NameHistory,
    SignEntry,
    check_history,
    checked_name,
    conflict_message,
    next_entry,
)
from qinglan.store.parallel import run_each
from qinglan.terminal.progress import transfer_progress

RELEASES = "releases"
NAMES = "names"
NOTES = "notes"
TESTS = "tests"
MAX_SHOWN = 5
DIGEST = re.compile(r"[0-9a-f]{64}")
WORD = re.compile(r"[a-z][a-z0-9-]{0,31}")
ENTRY = re.compile(r"[0-9]{6,}\.json")
MAX_TRIES = 100
"""Attempts to write the next entry of a list; an attempt fails if another writer was faster."""


class Store:
    def __init__(self, backend: StorageBackend) -> None:
        self.backend = backend

    @property
    def address(self) -> str:
        return self.backend.address

    def prepare(self) -> "Store":
        """Create the store if it does not exist. Call this before the first write."""
        self.backend.prepare()
        return self

    def push(self, folder: Path, digest: str) -> str:
        """Store a folder under its digest, and return the artifact's URI. An artifact that exists is only checked."""
        base, files = _artifact_key(digest), read_sources(folder)
        manifest = build_manifest(files)
        if manifest.digest != digest:
            raise DataError(
                f"{folder}: its digest is {manifest.digest}, not {digest}. Name the folder that was signed."
            )
        self.backend.prepare()
        exists = self.has(digest)
        if not exists:
            self._put(files, manifest, base)
        # Compare the stored files before writing the manifest, which marks the artifact as completely pushed.
        if faults := differences(manifest, self.backend.objects(f"{base}/")):
            raise DataError(f"{self.address}/{base}: {_format_faults(faults)}. Remove what is there, and push again.")
        if not exists:
            self.backend.create(f"{base}.json", manifest.dump())
        return f"{self.address}/{base}"

    def pull(self, digest: str, into: Path, select: Callable[[str], bool] = lambda name: True) -> Path:
        """Download an artifact, check every byte, and replace the folder `into` by it.

        After a DataError the folder is unchanged. `select` picks files by name; the other files are not downloaded.
        """
        manifest = self._manifest(digest)
        if manifest is None:
            raise DataError(f"{self.address}: no {RELEASES}/{digest}. Push it first, or look in another store.")
        files = {name: file for name, file in manifest.files.items() if select(name)}
        pull_files(self.backend, _artifact_key(digest), Manifest(files=files), into)
        return into

    def has(self, digest: str) -> bool:
        """True if the artifact was pushed completely."""
        return self._manifest(digest) is not None

    def digests(self) -> Iterator[str]:
        """List the artifacts that were pushed completely."""
        for child in self.backend.children(f"{RELEASES}/"):
            digest, _, ending = child.partition(".")
            if ending == "json" and DIGEST.fullmatch(digest):
                yield digest

    def names(self) -> Iterator[str]:
        """List the names that point to an artifact."""
        for tenant in filter(TENANT.fullmatch, self.backend.children(f"{NAMES}/")):
            for model in self.backend.children(f"{NAMES}/{tenant}/"):
                if NAME.fullmatch(f"{tenant}/{model}") and self._entries(f"{NAMES}/{tenant}/{model}/"):
                    yield f"{tenant}/{model}"

    def name(self, name: str) -> NameHistory | None:
        """Read and check the history of a name; None if the name does not exist.

        Raises a DataError if an entry was rewritten.
        """
        history = self.history(name)
        if faults := check_history(history):
            raise DataError(f"{self.address}/{NAMES}/{name}: {_format_faults(faults)}. Do not trust where it points.")
        return NameHistory(name, history) if history else None

    def history(self, name: str) -> tuple[HistoryEntry, ...]:
        """Read each entry as it is stored, oldest first, without checking the history as a whole."""
        where = f"{NAMES}/{checked_name(name)}/"
        entries = []
        for key in (f"{where}{child}" for child in self._entries(where)):
            if (data := self.backend.read(key)) is None:
                raise DataError(f"{self.address}/{key}: was removed while it was being read. Look again.")
            entries.append(HistoryEntry.parse(data, f"{self.address}/{key}"))
        return tuple(entries)

    def point(
        self, name: str, digest: str, expected: str | None, by: str, sign: SignEntry | None = None
    ) -> NameHistory:
        """Point a name at `digest`. Raises a ConflictError unless it points at `expected` now (None: a new name).

        Without `sign` the entry has no signature, and an audit does not trust it.
        """
        checked_name(name)
        if not self.has(digest):
            raise DataError(f"{self.address}: no {RELEASES}/{digest} for {name} to point at. Push it first.")
        now = self.name(name)
        history = now.history if now else ()
        time = datetime.now(UTC).isoformat(timespec="milliseconds")
        entry = next_entry(name, history, digest, expected, by, time, sign)
        # If two writers move the name at once, only one can create the entry with this number.
        if not self.backend.create(f"{NAMES}/{name}/{len(history) + 1:06}.json", entry.dump()):
            winner = self.name(name)
            raise ConflictError(conflict_message(name, winner.current if winner else None, expected))
        return NameHistory(name, (*history, entry))

    def attach(self, digest: str, word: str, note: bytes) -> None:
        """Store a note, such as an override, beside a release; notes are never changed."""
        if not self.has(digest):
            raise DataError(f"{self.address}: no {RELEASES}/{digest} to lay a note beside. Push it first.")
        if not WORD.fullmatch(word):
            raise DataError(f"{word!r} is no word for a note: it is in a-z, 0-9 and '-', as in break-glass.")
        self.backend.create(f"{NOTES}/{digest}/{word}-{hashlib.sha256(note).hexdigest()}", note)

    def add_use(self, test: str, line: str, model: str, about: Mapping[str, str]) -> int:
        """Add a model to the list of models that a test has judged, and return its number, counted from 1.

        Each `line` of models, such as `rewriter`, has its own list. A model is listed once. If two writers add models
        at the same time, each gets another number, because an entry is never overwritten.
        """
        entry, base = orjson.dumps({"model": _checked_digest(model), **about}), _uses_key(test, line)
        for _ in range(MAX_TRIES):
            listed = self.uses(test, line)
            if numbers := [number for number, name in listed.items() if name == model]:
                return min(numbers)
            number = len(listed) + 1
            if self.backend.create(f"{base}{number:06}.json", entry):
                return number
        raise ConflictError(
            f"{self.address}/{base}: the next entry of this list was taken {MAX_TRIES} times. Run again when no "
            "other run evaluates on this test."
        )

    def uses(self, test: str, line: str) -> dict[int, str]:
        """Return the models that a test has judged, by their number in the list of this `line`, such as `rewriter`.

        Raises a DataError if the list is damaged.
        """
        base, listed = _uses_key(test, line), {}
        advice = "Put it back from a copy of the store, or lock away a new test."
        for number, child in enumerate(self._entries(base, advice), 1):
            where = f"{self.address}/{base}{child}"
            model = parse_json_mapping(self.backend.read(f"{base}{child}") or b"", where).get("model")
            if not (isinstance(model, str) and DIGEST.fullmatch(model)):
                raise DataError(f"{where}: names no model by its digest. {advice}")
            listed[number] = model
        return listed

    def notes(self, digest: str) -> list[bytes]:
        """Read the notes beside a release, in the order of their names; changed notes are left out."""
        return [note for _, note in self._notes(digest) if note is not None]

    def changed_notes(self, digest: str) -> list[str]:
        """Return the names of the notes whose bytes were changed; these notes are not trusted."""
        return [name for name, note in self._notes(digest) if note is None]

    def _notes(self, digest: str) -> Iterator[tuple[str, bytes | None]]:
        """Yield the name and bytes of each note; None replaces bytes that do not match the digest in the name."""
        if not DIGEST.fullmatch(digest):
            raise DataError(f"{digest[:80]!r}: no SHA-256 digest.")
        for child in sorted(self.backend.children(f"{NOTES}/{digest}/")):
            note = self.backend.read(f"{NOTES}/{digest}/{child}") or b""
            yield child, note if child.endswith(f"-{hashlib.sha256(note).hexdigest()}") else None

    def _manifest(self, digest: str) -> Manifest | None:
        key = f"{_artifact_key(digest)}.json"
        data = self.backend.read(key)
        if data is None:
            return None
        manifest = Manifest.parse(data, f"{self.address}/{key}")
        if manifest.digest != digest:
            raise DataError(
                f"{self.address}/{key}: lists the files of {manifest.digest}. Push the artifact again elsewhere."
            )
        return manifest

    def _put(self, files: Mapping[str, SourceFile], manifest: Manifest, base: str) -> None:
        """Push missing files: small ones several at once, then large ones, each in several parts at once."""
        missing = files_to_push(manifest, self.backend.objects(f"{base}/"))
        with transfer_progress("push", sum(file.size for file in files.values())) as tally:

            def put(name: str) -> None:
                self.backend.put(f"{base}/{name}", files[name], tally)

            tally.add_existing(sum(file.size for name, file in files.items() if name not in missing))
            run_each(put, [name for name in missing if files[name].size <= MIN_PART_SIZE])
            for name in (name for name in missing if files[name].size > MIN_PART_SIZE):
                put(name)

    def _entries(self, base: str, advice: str = "Do not trust where it points.") -> list[str]:
        """List the numbered files under a key.

        Raises a DataError if a number is missing, or if a file does not belong there.
        """
        entries = sorted(filter(ENTRY.fullmatch, self.backend.children(base)), key=lambda child: (len(child), child))
        for number, child in enumerate(entries, 1):
            if child != f"{number:06}.json":
                raise DataError(
                    f"{self.address}/{base.rstrip('/')}: entry {number:06} is gone, or {child} does not belong "
                    f"there. {advice}"
                )
        return entries


def _artifact_key(digest: str) -> str:
    return f"{RELEASES}/{_checked_digest(digest)}"


def _uses_key(test: str, line: str) -> str:
    if not WORD.fullmatch(line):
        raise DataError(f"{line[:80]!r} is no line of models: it is in a-z, 0-9 and '-', as in rewriter.")
    return f"{TESTS}/{_checked_digest(test)}/{line}/"


def _checked_digest(digest: str) -> str:
    if not DIGEST.fullmatch(digest):
        raise DataError(f"{digest[:80]!r} is no digest: it is 64 letters of 0-9 and a-f, as sha256sum prints them.")
    return digest


def _format_faults(faults: list[str]) -> str:
    more = f"; and {len(faults) - MAX_SHOWN} more" if len(faults) > MAX_SHOWN else ""
    return "; ".join(faults[:MAX_SHOWN]) + more
