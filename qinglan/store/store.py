"""The store: what is pushed, pulled and pointed at, the same for every shelf."""

import hashlib
import re
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed
from datetime import UTC, datetime
from pathlib import Path

from qinglan.errors import Conflict, DataError
from qinglan.files import replaced_folder
from qinglan.progress import progress
from qinglan.store.manifest import Manifest, Stored, described, differences
from qinglan.store.names import NAME, Entry, Name, check_history, checked_name, moved, next_entry
from qinglan.store.shelf import Shelf

RELEASES = "releases"
NAMES = "names"
NOTES = "notes"
FILES_AT_ONCE = 4
SHOWN = 5
DIGEST = re.compile(r"[0-9a-f]{64}")
KIND = re.compile(r"[a-z][a-z0-9-]{0,31}")
ENTRY = re.compile(r"\d{6}\.json")


class Store:
    """Artifacts by digest, and the names that point at them, on one shelf."""

    def __init__(self, shelf: Shelf) -> None:
        self.shelf = shelf

    @property
    def address(self) -> str:
        return self.shelf.address

    def push(self, folder: Path, digest: str, kind: str = RELEASES) -> str:
        """Keep a folder under its own digest, once; its URI. One that is there already is checked, not written."""
        base = _base(digest, kind)
        manifest = described(folder)
        if manifest.digest != digest:
            raise DataError(
                f"{folder}: its digest is {manifest.digest}, not {digest}. Name the folder that was signed."
            )
        there = self._manifest(digest, kind) is not None
        if not there:
            self._put(folder, manifest, base)
        if faults := differences(manifest, self.shelf.found(f"{base}/")):
            raise DataError(f"{self.address}/{base}: {_shown(faults)}. Remove what is there, and push again.")
        if not there:
            self.shelf.create(f"{base}.json", manifest.dump())
        return f"{self.address}/{base}"

    def pull(self, digest: str, into: Path, kind: str = RELEASES) -> Path:
        """The artifact as a folder in place of `into`, every byte checked; or a DataError and nothing changed."""
        manifest = self._manifest(digest, kind)
        if manifest is None:
            raise DataError(f"{self.address}: no {kind}/{digest}. Push it first, or look in another store.")
        base = _base(digest, kind)
        with replaced_folder(into) as partial:
            self._get(manifest, base, partial)
        return into

    def has(self, digest: str, kind: str = RELEASES) -> bool:
        """Whether the artifact was wholly pushed."""
        return self._manifest(digest, kind) is not None

    def digests(self, kind: str = RELEASES) -> Iterator[str]:
        """Every artifact that was wholly pushed."""
        for child in self.shelf.children(f"{_checked_kind(kind)}/"):
            digest, _, ending = child.partition(".")
            if ending == "json" and DIGEST.fullmatch(digest):
                yield digest

    def names(self) -> Iterator[str]:
        """Every name that points somewhere."""
        for tenant in self.shelf.children(f"{NAMES}/"):
            for model in self.shelf.children(f"{NAMES}/{tenant}/"):
                if NAME.fullmatch(f"{tenant}/{model}") and self._entries(f"{tenant}/{model}"):
                    yield f"{tenant}/{model}"

    def name(self, name: str) -> Name | None:
        """Where a name points; a DataError if its history was rewritten."""
        history = self.history(name)
        if faults := check_history(history):
            raise DataError(f"{self.address}/{NAMES}/{name}: {_shown(faults)}. Do not trust where it points.")
        return Name(name, history) if history else None

    def history(self, name: str) -> tuple[Entry, ...]:
        """Each entry as it is stored, oldest first, unchecked: for whoever wants to see what is wrong with it."""
        where = f"{NAMES}/{checked_name(name)}"
        return tuple(self._entry(f"{where}/{child}") for child in self._entries(name))

    def point(self, name: str, digest: str, expected: str | None, by: str) -> Name:
        """Move a name from the digest `expected` (None: it is new) to another, or lose with a Conflict."""
        checked_name(name)
        if not self.has(digest):
            raise DataError(f"{self.address}: no {RELEASES}/{digest} for {name} to point at. Push it first.")
        now = self.name(name)
        history = now.history if now else ()
        entry = next_entry(name, history, digest, expected, by, datetime.now(UTC).isoformat(timespec="milliseconds"))
        if not self.shelf.create(f"{NAMES}/{name}/{len(history) + 1:06}.json", entry.dump()):
            winner = self.name(name)
            raise Conflict(moved(name, winner.current if winner else None, expected))
        return Name(name, (*history, entry))

    def attach(self, digest: str, word: str, note: bytes) -> None:
        """Lay a note, such as an override, beside a release, which cannot be added to; it is never changed."""
        if not self.has(digest):
            raise DataError(f"{self.address}: no {RELEASES}/{digest} to lay a note beside. Push it first.")
        own = hashlib.sha256(note).hexdigest()
        self.shelf.create(f"{NOTES}/{digest}/{_checked_kind(word)}-{own}", note)

    def notes(self, digest: str) -> list[bytes]:
        """What lies beside a release, in the order of its names; a note that was changed is a DataError."""
        if not DIGEST.fullmatch(digest):
            raise DataError(f"{digest[:80]!r}: no SHA-256 digest.")
        return [
            self._note(f"{NOTES}/{digest}/{child}") for child in sorted(self.shelf.children(f"{NOTES}/{digest}/"))
        ]

    def _note(self, key: str) -> bytes:
        note = self.shelf.read(key) or b""
        if not key.endswith(f"-{hashlib.sha256(note).hexdigest()}"):
            raise DataError(f"{self.address}/{key}: is not what was laid there. Someone has changed it.")
        return note

    def _manifest(self, digest: str, kind: str) -> Manifest | None:
        key = f"{_base(digest, kind)}.json"
        data = self.shelf.read(key)
        if data is None:
            return None
        manifest = Manifest.parse(data, f"{self.address}/{key}")
        if manifest.digest != digest:
            raise DataError(
                f"{self.address}/{key}: lists the files of {manifest.digest}. Push the artifact again elsewhere."
            )
        return manifest

    def _put(self, folder: Path, manifest: Manifest, base: str) -> None:
        _each("push", manifest.files, lambda name, file: self.shelf.put(f"{base}/{name}", folder / name, file.sha256))

    def _get(self, manifest: Manifest, base: str, into: Path) -> None:
        _each("pull", manifest.files, lambda name, file: self._fetch(f"{base}/{name}", into / name, file))

    def _fetch(self, key: str, target: Path, file: Stored) -> None:
        """One file, given up as soon as it is longer than it should be."""
        target.parent.mkdir(parents=True, exist_ok=True)
        sha256, size = hashlib.sha256(), 0
        with target.open("xb") as out:
            for chunk in self.shelf.chunks(key):
                size += len(chunk)
                if size > file.size:
                    break
                sha256.update(chunk)
                out.write(chunk)
        if size != file.size or sha256.hexdigest() != file.sha256:
            raise DataError(
                f"{self.address}/{key}: not the bytes that were pushed. Nothing of this artifact was kept."
            )

    def _entries(self, name: str) -> list[str]:
        """The files of a history; a DataError where one is missing between them."""
        found = sorted(child for child in self.shelf.children(f"{NAMES}/{name}/") if ENTRY.fullmatch(child))
        for number, child in enumerate(found, 1):
            if child != f"{number:06}.json":
                raise DataError(
                    f"{self.address}/{NAMES}/{name}: entry {number:06} is gone. Do not trust where it points."
                )
        return found

    def _entry(self, key: str) -> Entry:
        data = self.shelf.read(key)
        if data is None:
            raise DataError(f"{self.address}/{key}: was removed while it was being read. Look again.")
        return Entry.parse(data, f"{self.address}/{key}")


def _each(label: str, files: Mapping[str, Stored], work: Callable[[str, Stored], None]) -> None:
    """A few files at a time; after the first failure none is begun any more."""
    with ThreadPoolExecutor(FILES_AT_ONCE, thread_name_prefix=label) as pool, progress(label, len(files)) as tick:
        running = [pool.submit(work, name, file) for name, file in files.items()]
        try:
            for done in as_completed(running):
                done.result()
                tick()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _base(digest: str, kind: str) -> str:
    if not DIGEST.fullmatch(digest):
        raise DataError(f"{digest!r} is no digest: it is 64 letters of 0-9 and a-f, as sha256sum prints them.")
    return f"{_checked_kind(kind)}/{digest}"


def _checked_kind(kind: str) -> str:
    if not KIND.fullmatch(kind) or kind == NAMES:
        raise DataError(f"{kind!r} is no kind of artifact: it is a word in a-z, 0-9 and '-', as in {RELEASES}.")
    return kind


def _shown(faults: list[str]) -> str:
    more = f"; and {len(faults) - SHOWN} more" if len(faults) > SHOWN else ""
    return "; ".join(faults[:SHOWN]) + more
